// Sixteen float lanes in four NEON registers. Included inside the namespace of one instruction set.
// See simd_scalar.h for what each function means.
#include <arm_neon.h>

struct F32 { float32x4_t v[4]; };
struct U32 { uint32x4_t v[4]; };

#define SB_EACH(T, expression) \
  T r;                         \
  for (int i = 0; i < 4; ++i) r.v[i] = expression; \
  return r

SB_INLINE F32 set1(float x) { SB_EACH(F32, vdupq_n_f32(x)); }
SB_INLINE F32 zero() { return set1(0.0f); }
SB_INLINE F32 load(const float* p) { SB_EACH(F32, vld1q_f32(p + 4 * i)); }
SB_INLINE void store(float* p, F32 a) { for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]); }
SB_INLINE F32 add(F32 a, F32 b) { SB_EACH(F32, vaddq_f32(a.v[i], b.v[i])); }
SB_INLINE F32 sub(F32 a, F32 b) { SB_EACH(F32, vsubq_f32(a.v[i], b.v[i])); }
SB_INLINE F32 mul(F32 a, F32 b) { SB_EACH(F32, vmulq_f32(a.v[i], b.v[i])); }
SB_INLINE F32 div(F32 a, F32 b) { SB_EACH(F32, vdivq_f32(a.v[i], b.v[i])); }
SB_INLINE F32 max(F32 a, F32 b) { SB_EACH(F32, vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
SB_INLINE F32 fma(F32 a, F32 b, F32 c) { SB_EACH(F32, vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
SB_INLINE F32 select_less(F32 a, F32 b, F32 yes, F32 no) {
  SB_EACH(F32, vbslq_f32(vcltq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]));
}
SB_INLINE F32 keep_nan(F32 x, F32 y) { SB_EACH(F32, vbslq_f32(vceqq_f32(x.v[i], x.v[i]), y.v[i], x.v[i])); }
SB_INLINE F32 add_exponent(F32 p, F32 t) {
  SB_EACH(F32, vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p.v[i]),
                                               vshlq_n_u32(vreinterpretq_u32_f32(t.v[i]), 23))));
}

SB_INLINE U32 set1_u(uint32_t x) { SB_EACH(U32, vdupq_n_u32(x)); }
SB_INLINE U32 zero_u() { return set1_u(0); }
SB_INLINE U32 load_u(const uint32_t* p) { SB_EACH(U32, vld1q_u32(p + 4 * i)); }
SB_INLINE void store_u(uint32_t* p, U32 a) { for (int i = 0; i < 4; ++i) vst1q_u32(p + 4 * i, a.v[i]); }
SB_INLINE F32 to_float(U32 a) { SB_EACH(F32, vcvtq_f32_s32(vreinterpretq_s32_u32(a.v[i]))); }

SB_INLINE uint32x4_t bf16_bits_part(float32x4_t x) {
  uint32x4_t bits = vreinterpretq_u32_f32(x);
  uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  uint32x4_t rounded = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
  uint32x4_t magnitude = vandq_u32(rounded, vdupq_n_u32(0x7fff));
  rounded = vandq_u32(rounded, vcgeq_u32(magnitude, vdupq_n_u32(kBf16Least)));
  return vbslq_u32(vceqq_f32(x, x), rounded, vdupq_n_u32(0x7fc0));
}
SB_INLINE U32 bf16_bits(F32 a) { SB_EACH(U32, bf16_bits_part(a.v[i])); }
SB_INLINE U32 pair(U32 first, U32 second) { SB_EACH(U32, vorrq_u32(vshlq_n_u32(first.v[i], 16), second.v[i])); }
SB_INLINE U32 pair_neighbours(U32 a, U32 b) {
  U32 even, odd;
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t* from = i < 2 ? a.v + 2 * i : b.v + 2 * (i - 2);
    even.v[i] = vuzp1q_u32(from[0], from[1]);
    odd.v[i] = vuzp2q_u32(from[0], from[1]);
  }
  return pair(even, odd);
}

SB_INLINE float32x4_t dot2_part(float32x4_t acc, uint32x4_t a, uint32x4_t b) {
  const uint32x4_t high = vdupq_n_u32(0xffff0000u);
  acc = vfmaq_f32(acc, vreinterpretq_f32_u32(vandq_u32(a, high)), vreinterpretq_f32_u32(vandq_u32(b, high)));
  return vfmaq_f32(acc, vreinterpretq_f32_u32(vshlq_n_u32(a, 16)), vreinterpretq_f32_u32(vshlq_n_u32(b, 16)));
}
SB_INLINE F32 dot2(F32 acc, U32 a, U32 b) { SB_EACH(F32, dot2_part(acc.v[i], a.v[i], b.v[i])); }

// The base instruction set has no byte dot product: even and odd bytes are widened to int16.
SB_INLINE uint32x4_t dot4_part(uint32x4_t acc, uint32x4_t x, uint32x4_t w) {
  int16x8_t x0 = vreinterpretq_s16_u32(vandq_u32(x, vdupq_n_u32(0x00ff00ff)));
  int16x8_t x1 = vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_u32(x), 8));
  int16x8_t w0 = vshrq_n_s16(vshlq_n_s16(vreinterpretq_s16_u32(w), 8), 8);
  int16x8_t w1 = vshrq_n_s16(vreinterpretq_s16_u32(w), 8);
  int32x4_t low = vmlal_s16(vmull_s16(vget_low_s16(x0), vget_low_s16(w0)), vget_low_s16(x1), vget_low_s16(w1));
  int32x4_t high = vmlal_high_s16(vmull_high_s16(x0, w0), x1, w1);
  return vaddq_u32(acc, vreinterpretq_u32_s32(vpaddq_s32(low, high)));
}
SB_INLINE U32 dot4(U32 acc, U32 x, U32 w) { SB_EACH(U32, dot4_part(acc.v[i], x.v[i], w.v[i])); }
#undef SB_EACH

constexpr int kTileRows = 5;  // 5 rows x 4 registers = 20 accumulators of 32 registers; bf16 takes 9 more
constexpr int kTileVectors = 1;
constexpr int kAttentionRows = 3;
constexpr int kAttentionTile = 5;  // rows x groups, as above
