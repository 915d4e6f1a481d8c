// Exact functions on sixteen lanes (docs/numerics.md 1.2, 1.3).

SB_INLINE F32 exp16(F32 x) {
  F32 clamped = select_less(set1(88.0f), x, set1(88.0f), x);
  F32 magic = set1(0x1.8p+23f);
  F32 t = fma(clamped, set1(0x1.715476p+0f), magic);
  F32 n = sub(t, magic);
  F32 r = fma(n, set1(-0x1.62e400p-1f), clamped);
  r = fma(n, set1(-0x1.7f7d1cp-20f), r);
  F32 p = set1(0x1.6a2434p-10f);
  p = fma(p, r, set1(0x1.1239e2p-7f));
  p = fma(p, r, set1(0x1.5558f2p-5f));
  p = fma(p, r, set1(0x1.555492p-3f));
  p = fma(p, r, set1(0x1.fffffcp-2f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  F32 y = select_less(x, set1(-87.0f), zero(), add_exponent(p, t));
  return keep_nan(x, y);
}

SB_INLINE float lane_tree_sum(F32 sums) {
  float a[16];
  store(a, sums);
  for (int width = 8; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) a[j] += a[j + width];
  return a[0];
}

// Maximum of the lanes; exact, so the order is free. A NaN may be lost here; it stays in the values themselves.
SB_INLINE float lane_max(F32 m) {
  float a[16];
  store(a, m);
  float best = a[0];
  for (int j = 1; j < 16; ++j) best = a[j] > best ? a[j] : best;
  return best;
}

// The first `count` floats at p, the other lanes filled.
SB_INLINE F32 load_partial(const float* p, int64_t count, float fill) {
  float a[16];
  for (int j = 0; j < 16; ++j) a[j] = j < count ? p[j] : fill;
  return load(a);
}

SB_INLINE void store_partial(float* p, F32 x, int64_t count) {
  float a[16];
  store(a, x);
  for (int j = 0; j < count; ++j) p[j] = a[j];
}
