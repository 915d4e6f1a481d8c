// Arithmetic peak of one thread: independent chains in registers, nothing else. Compiled by peak.py for the machine it runs on.
#include <immintrin.h>
#include <stdint.h>

namespace {
constexpr int kChains = 16;  // more than latency times throughput of any of these instructions

// Runs `step` on each chain `rounds` times; the results are used, so that nothing is optimised away. All loops over chains are
// unrolled: an array that is indexed at run time would live in memory.
template <class V, class Step>
double run(int64_t rounds, V start, Step step) {
  V acc[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) acc[c] = start;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      acc[c] = step(acc[c]);
      asm("" : "+v"(acc[c]));  // no chain is merged with another or moved out of the loop
    }
  }
  double sum = 0;
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) sum += double(acc[c][0]);
  return sum;
}
}  // namespace

// Operations (a multiply and an add are two) of one round of each kernel; 0 where the machine has no such instruction.
extern "C" int64_t peak_operations(int kind) {
#ifdef __AVX512F__
  if (kind == 0) return kChains * 16 * 2;
#elif defined(__FMA__)
  if (kind == 0) return kChains * 8 * 2;
#endif
#ifdef __AVX512BF16__
  if (kind == 1) return kChains * 32 * 2;
#endif
#ifdef __AVX512VNNI__
  if (kind == 2) return kChains * 64 * 2;
#endif
  return 0;
}

extern "C" double peak_run(int kind, int64_t rounds) {
#ifdef __AVX512F__
  if (kind == 0) {
    const __m512 x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(0.5f);
    return run(rounds, x, [&](__m512 a) { return _mm512_fmadd_ps(x, y, a); });
  }
#elif defined(__FMA__)
  if (kind == 0) {
    const __m256 x = _mm256_set1_ps(1.0f), y = _mm256_set1_ps(0.5f);
    return run(rounds, x, [&](__m256 a) { return _mm256_fmadd_ps(x, y, a); });
  }
#endif
#ifdef __AVX512BF16__
  if (kind == 1) {
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80), y = (__m512bh)_mm512_set1_epi32(0x3f003f00);
    return run(rounds, _mm512_set1_ps(1.0f), [&](__m512 a) { return _mm512_dpbf16_ps(a, x, y); });
  }
#endif
#ifdef __AVX512VNNI__
  if (kind == 2) {
    const __m512i x = _mm512_set1_epi32(0x01010101), y = _mm512_set1_epi32(0x02010102);
    return run(rounds, x, [&](__m512i a) { return _mm512_dpbusd_epi32(a, x, y); });
  }
#endif
  return 0;
}
