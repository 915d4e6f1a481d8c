// Sixteen float lanes in two AVX2 registers. Included inside the namespace of one instruction set.
// See simd_scalar.h for what each function means.
#include <immintrin.h>

struct F32 { __m256 a, b; };
struct U32 { __m256i a, b; };

SB_INLINE F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
SB_INLINE F32 set1(float x) { __m256 v = _mm256_set1_ps(x); return {v, v}; }
SB_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
SB_INLINE void store(float* p, F32 x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
SB_INLINE F32 add(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
SB_INLINE F32 sub(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
SB_INLINE F32 mul(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
SB_INLINE F32 div(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
SB_INLINE F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
SB_INLINE F32 fma(F32 x, F32 y, F32 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
SB_INLINE F32 select_less(F32 x, F32 y, F32 yes, F32 no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
SB_INLINE F32 keep_nan(F32 x, F32 y) {
  return {_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
SB_INLINE __m256 add_exponent_half(__m256 p, __m256 t) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
SB_INLINE F32 add_exponent(F32 p, F32 t) { return {add_exponent_half(p.a, t.a), add_exponent_half(p.b, t.b)}; }

SB_INLINE U32 zero_u() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
SB_INLINE U32 set1_u(uint32_t x) { __m256i v = _mm256_set1_epi32(int(x)); return {v, v}; }
SB_INLINE U32 load_u(const uint32_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))};
}
SB_INLINE void store_u(uint32_t* p, U32 x) {
  _mm256_storeu_si256((__m256i*)p, x.a);
  _mm256_storeu_si256((__m256i*)(p + 8), x.b);
}
SB_INLINE F32 to_float(U32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

SB_INLINE __m256i bf16_bits_half(__m256 x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  rounded = _mm256_srli_epi32(rounded, 16);
  __m256i magnitude = _mm256_and_si256(rounded, _mm256_set1_epi32(0x7fff));
  rounded = _mm256_and_si256(rounded, _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(kBf16Least - 1)));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
}
SB_INLINE U32 bf16_bits(F32 x) { return {bf16_bits_half(x.a), bf16_bits_half(x.b)}; }
SB_INLINE U32 pair(U32 first, U32 second) {
  return {_mm256_or_si256(_mm256_slli_epi32(first.a, 16), second.a),
          _mm256_or_si256(_mm256_slli_epi32(first.b, 16), second.b)};
}
// As 64-bit lanes, two neighbours are one number: the even one's bits go up by 16, the odd one's come down from 32.
SB_INLINE __m256i pair_neighbours_half(__m256i a, __m256i b) {
  __m256i x = _mm256_or_si256(_mm256_slli_epi64(a, 16), _mm256_srli_epi64(a, 32));
  __m256i y = _mm256_or_si256(_mm256_slli_epi64(b, 16), _mm256_srli_epi64(b, 32));
  __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), 0x88));
  return _mm256_permute4x64_epi64(low, 0xd8);  // halves of a and b came in turns
}
SB_INLINE U32 pair_neighbours(U32 x, U32 y) { return {pair_neighbours_half(x.a, x.b), pair_neighbours_half(y.a, y.b)}; }

SB_INLINE __m256 dot2_half(__m256 acc, __m256i x, __m256i y) {
  const __m256i high = _mm256_set1_epi32(int(0xffff0000u));
  __m256 x0 = _mm256_castsi256_ps(_mm256_and_si256(x, high)), y0 = _mm256_castsi256_ps(_mm256_and_si256(y, high));
  __m256 x1 = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)), y1 = _mm256_castsi256_ps(_mm256_slli_epi32(y, 16));
  return _mm256_fmadd_ps(x1, y1, _mm256_fmadd_ps(x0, y0, acc));
}
SB_INLINE F32 dot2(F32 acc, U32 x, U32 y) { return {dot2_half(acc.a, x.a, y.a), dot2_half(acc.b, x.b, y.b)}; }

// vpmaddubsw would saturate its int16 sums; even and odd bytes are widened instead.
SB_INLINE __m256i dot4_half(__m256i acc, __m256i x, __m256i w) {
  __m256i x0 = _mm256_and_si256(x, _mm256_set1_epi16(0xff)), x1 = _mm256_srli_epi16(x, 8);
  __m256i w0 = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), w1 = _mm256_srai_epi16(w, 8);
  return _mm256_add_epi32(acc, _mm256_add_epi32(_mm256_madd_epi16(x0, w0), _mm256_madd_epi16(x1, w1)));
}
SB_INLINE U32 dot4(U32 acc, U32 x, U32 w) { return {dot4_half(acc.a, x.a, w.a), dot4_half(acc.b, x.b, w.b)}; }

constexpr int kTileRows = 6;  // 6 rows x 1 pair of registers = 12 accumulators of 16 registers
constexpr int kTileVectors = 1;
constexpr int kAttentionRows = 3;
constexpr int kAttentionTile = 6;  // rows x groups, as above
