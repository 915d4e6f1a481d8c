// Sixteen float lanes as plain arrays: the meaning of every function that the other simd_*.h files provide.
// Included inside the namespace of one instruction set; SB_INLINE and kBf16Least come from isa.h.

struct F32 { float v[16]; };
struct U32 { uint32_t v[16]; };  // bit patterns, pairs of bf16, quads of bytes, or int32 accumulators

#define SB_EACH(T, expression) \
  T r;                         \
  for (int i = 0; i < 16; ++i) r.v[i] = expression; \
  return r

SB_INLINE uint32_t bits_of(float x) { uint32_t u; __builtin_memcpy(&u, &x, 4); return u; }
SB_INLINE float float_of(uint32_t u) { float x; __builtin_memcpy(&x, &u, 4); return x; }

SB_INLINE F32 set1(float x) { SB_EACH(F32, x); }
SB_INLINE F32 zero() { return set1(0.0f); }
SB_INLINE F32 load(const float* p) { SB_EACH(F32, p[i]); }
SB_INLINE void store(float* p, F32 a) { for (int i = 0; i < 16; ++i) p[i] = a.v[i]; }
SB_INLINE F32 add(F32 a, F32 b) { SB_EACH(F32, a.v[i] + b.v[i]); }
SB_INLINE F32 sub(F32 a, F32 b) { SB_EACH(F32, a.v[i] - b.v[i]); }
SB_INLINE F32 mul(F32 a, F32 b) { SB_EACH(F32, a.v[i] * b.v[i]); }
SB_INLINE F32 div(F32 a, F32 b) { SB_EACH(F32, a.v[i] / b.v[i]); }
// b where either is a NaN, as on x86.
SB_INLINE F32 max(F32 a, F32 b) { SB_EACH(F32, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
SB_INLINE F32 fma(F32 a, F32 b, F32 c) { SB_EACH(F32, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
// a < b ? yes : no
SB_INLINE F32 select_less(F32 a, F32 b, F32 yes, F32 no) { SB_EACH(F32, a.v[i] < b.v[i] ? yes.v[i] : no.v[i]); }
// x where x is a NaN, else y
SB_INLINE F32 keep_nan(F32 x, F32 y) { SB_EACH(F32, x.v[i] != x.v[i] ? x.v[i] : y.v[i]); }
// p times two to the integer in the low bits of t's pattern
SB_INLINE F32 add_exponent(F32 p, F32 t) { SB_EACH(F32, float_of(bits_of(p.v[i]) + (bits_of(t.v[i]) << 23))); }

SB_INLINE U32 set1_u(uint32_t x) { SB_EACH(U32, x); }
SB_INLINE U32 zero_u() { return set1_u(0); }
SB_INLINE U32 load_u(const uint32_t* p) { SB_EACH(U32, p[i]); }
SB_INLINE void store_u(uint32_t* p, U32 a) { for (int i = 0; i < 16; ++i) p[i] = a.v[i]; }
SB_INLINE F32 to_float(U32 a) { SB_EACH(F32, float(int32_t(a.v[i]))); }

// bf16(x) of docs/numerics.md 1.1, in the low half of each lane.
SB_INLINE uint32_t bf16_bits_lane(float x) {
  if (x != x) return 0x7fc0;
  uint32_t u = bits_of(x), rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return (rounded & 0x7fff) < kBf16Least ? 0 : rounded;
}
SB_INLINE U32 bf16_bits(F32 a) { SB_EACH(U32, bf16_bits_lane(a.v[i])); }
// A pair of bf16 in one lane: the earlier element in the high half, which the paired dot product takes first.
SB_INLINE U32 pair(U32 first, U32 second) { SB_EACH(U32, (first.v[i] << 16) | second.v[i]); }
// The sixteen pairs of neighbours among the thirty-two lanes of a, then b.
SB_INLINE U32 pair_neighbours(U32 a, U32 b) {
  uint32_t all[32];
  store_u(all, a);
  store_u(all + 16, b);
  SB_EACH(U32, (all[2 * i] << 16) | all[2 * i + 1]);
}
// fma(second of a, second of b, fma(first of a, first of b, acc))
SB_INLINE F32 dot2(F32 acc, U32 a, U32 b) {
  SB_EACH(F32, __builtin_fmaf(float_of(a.v[i] << 16), float_of(b.v[i] << 16),
                              __builtin_fmaf(float_of(a.v[i] & 0xffff0000u), float_of(b.v[i] & 0xffff0000u), acc.v[i])));
}
// acc + the sum of four products of an unsigned byte of x and a signed byte of w, modulo 2^32
SB_INLINE uint32_t dot4_lane(uint32_t acc, uint32_t x, uint32_t w) {
  for (int b = 0; b < 32; b += 8) acc += uint32_t(int32_t((x >> b) & 0xff) * int32_t(int8_t(w >> b)));
  return acc;
}
SB_INLINE U32 dot4(U32 acc, U32 x, U32 w) { SB_EACH(U32, dot4_lane(acc.v[i], x.v[i], w.v[i])); }
#undef SB_EACH

constexpr int kTileRows = 2;
constexpr int kTileVectors = 1;
constexpr int kAttentionRows = 2;
constexpr int kAttentionTile = 2;
