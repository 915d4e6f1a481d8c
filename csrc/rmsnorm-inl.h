// Body of rmsnorm.h for one instruction set.

SB_INLINE void rmsnorm_row(const float* x, const float* weight, float eps, int64_t width, float* out) {
  F32 sums = zero();
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    F32 v = load(x + i);
    sums = fma(v, v, sums);
  }
  if (i < width) {  // lanes beyond the end add fma(0, 0, acc): no sum of squares is -0, so nothing changes
    F32 v = load_partial(x + i, width - i, 0.0f);
    sums = fma(v, v, sums);
  }
  const float r = 1.0f / __builtin_sqrtf(lane_tree_sum(sums) / float(width) + eps);
  i = 0;
  for (; i + kLanes <= width; i += kLanes) store(out + i, mul(mul(load(x + i), set1(r)), load(weight + i)));
  for (; i < width; ++i) out[i] = (x[i] * r) * weight[i];
}

inline void rmsnorm(const RmsNormArgs& a, ThreadPool& pool) {
  pool.run_rows(a.rows, 8, [&](int64_t row) {
    rmsnorm_row(a.x + row * a.width, a.weight, a.eps, a.width, a.out + row * a.width);
  });
}
