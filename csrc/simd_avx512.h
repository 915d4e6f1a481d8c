// Sixteen float lanes in one AVX-512 register. Included inside the namespace of one instruction set.
// See simd_scalar.h for what each function means.
#include <immintrin.h>

struct F32 { __m512 v; };
// Lanes of 32 bits by type: of an accumulator that is a __m512i, whose lanes have 64, GCC keeps two copies and spills them.
typedef int Lanes32 __attribute__((vector_size(64)));
typedef Lanes32 UnalignedLanes32 __attribute__((aligned(4), may_alias));
struct U32 {
  Lanes32 lanes;
  U32() = default;
  U32(Lanes32 x) : lanes(x) {}
  U32(__m512i x) : lanes((Lanes32)x) {}
  __m512i bits() const { return (__m512i)lanes; }
};

SB_INLINE F32 zero() { return {_mm512_setzero_ps()}; }
SB_INLINE F32 set1(float x) { return {_mm512_set1_ps(x)}; }
SB_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
SB_INLINE void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
SB_INLINE F32 add(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
SB_INLINE F32 sub(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
SB_INLINE F32 mul(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
SB_INLINE F32 div(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
SB_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
SB_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
SB_INLINE F32 select_less(F32 a, F32 b, F32 yes, F32 no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
SB_INLINE F32 keep_nan(F32 x, F32 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), y.v, x.v)};
}
SB_INLINE F32 add_exponent(F32 p, F32 t) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(p.v), _mm512_slli_epi32(_mm512_castps_si512(t.v), 23)))};
}

SB_INLINE U32 zero_u() { return {_mm512_setzero_si512()}; }
SB_INLINE U32 set1_u(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
SB_INLINE U32 load_u(const uint32_t* p) { return {*(const UnalignedLanes32*)p}; }
SB_INLINE void store_u(uint32_t* p, U32 a) { _mm512_storeu_si512(p, a.bits()); }
SB_INLINE F32 to_float(U32 a) { return {_mm512_cvtepi32_ps(a.bits())}; }

SB_INLINE U32 bf16_bits(F32 a) {
  __m512i bits = _mm512_castps_si512(a.v);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  rounded = _mm512_srli_epi32(rounded, 16);
  __m512i magnitude = _mm512_and_si512(rounded, _mm512_set1_epi32(0x7fff));
  rounded = _mm512_maskz_mov_epi32(_mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(kBf16Least)), rounded);
  return {_mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0))};
}
SB_INLINE U32 pair(U32 first, U32 second) { return {_mm512_or_si512(_mm512_slli_epi32(first.bits(), 16), second.bits())}; }
SB_INLINE U32 pair_neighbours(U32 a, U32 b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return pair({_mm512_permutex2var_epi32(a.bits(), even, b.bits())}, {_mm512_permutex2var_epi32(a.bits(), odd, b.bits())});
}

SB_INLINE F32 dot2(F32 acc, U32 a, U32 b) {
#ifdef __AVX512BF16__
#if defined(__clang__) && __clang_major__ < 19
  asm("" : "+v"(a.lanes));  // Clang 16 recurses without end on a broadcast of 32 bits that is used as bf16
#endif
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.bits(), (__m512bh)b.bits())};
#else
  const __m512i high = _mm512_set1_epi32(int(0xffff0000u));
  __m512 a0 = _mm512_castsi512_ps(_mm512_and_si512(a.bits(), high));
  __m512 b0 = _mm512_castsi512_ps(_mm512_and_si512(b.bits(), high));
  __m512 a1 = _mm512_castsi512_ps(_mm512_slli_epi32(a.bits(), 16));
  __m512 b1 = _mm512_castsi512_ps(_mm512_slli_epi32(b.bits(), 16));
  return {_mm512_fmadd_ps(a1, b1, _mm512_fmadd_ps(a0, b0, acc.v))};
#endif
}

SB_INLINE U32 dot4(U32 acc, U32 x, U32 w) {
#ifdef __AVX512VNNI__
  return {_mm512_dpbusd_epi32(acc.bits(), x.bits(), w.bits())};
#else
  __m512i x0 = _mm512_and_si512(x.bits(), _mm512_set1_epi16(0xff)), x1 = _mm512_srli_epi16(x.bits(), 8);
  __m512i w0 = _mm512_srai_epi16(_mm512_slli_epi16(w.bits(), 8), 8), w1 = _mm512_srai_epi16(w.bits(), 8);
  return {_mm512_add_epi32(acc.bits(), _mm512_add_epi32(_mm512_madd_epi16(x0, w0), _mm512_madd_epi16(x1, w1)))};
#endif
}

constexpr int kTileRows = 12;    // 12 rows x 2 vectors = 24 accumulators of 32 registers
constexpr int kTileVectors = 2;
constexpr int kAttentionRows = 6;
constexpr int kAttentionTile = 24;  // rows x groups, as above
