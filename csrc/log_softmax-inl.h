// Body of log_softmax.h for one instruction set.

SB_INLINE float row_max(const float* x, int64_t n) {
  F32 m = set1(-__builtin_inff());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) m = max(m, load(x + i));
  if (i < n) m = max(m, load_partial(x + i, n - i, -__builtin_inff()));
  return lane_max(m);
}

// What is subtracted from each logit, one after the other.
struct Shift {
  float most, log_sum;
};

inline Shift shift_of(const float* x, int64_t n) {
  const float most = row_max(x, n);
  float total = 0.0f;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
    F32 sums = zero();
    for (int64_t i = begin; i < end; i += kLanes) {
      F32 v = i + kLanes <= end ? load(x + i) : load_partial(x + i, end - i, -__builtin_inff());
      sums = add(sums, exp16(sub(v, set1(most))));
    }
    const float sum = lane_tree_sum(sums);
    total = begin == 0 ? sum : total + sum;
  }
  return {most, log_exact(total)};
}

inline void log_softmax(const LogSoftmaxArgs& a, ThreadPool& pool) {
  pool.run(a.rows, [&](int64_t row) {
    const float* x = a.logits + row * a.vocab;
    const Shift shift = shift_of(x, a.vocab);
    if (a.columns != nullptr) {
      for (int64_t i = row * a.wanted; i < (row + 1) * a.wanted; ++i)
        a.out[i] = (x[a.columns[i]] - shift.most) - shift.log_sum;
      return;
    }
    float* out = a.out + row * a.vocab;
    int64_t i = 0;
    for (; i + kLanes <= a.vocab; i += kLanes)
      store(out + i, sub(sub(load(x + i), set1(shift.most)), set1(shift.log_sum)));
    for (; i < a.vocab; ++i) out[i] = (x[i] - shift.most) - shift.log_sum;
  });
}

inline void exp_shifted(const ExpShiftedArgs& a, ThreadPool& pool) {
  constexpr int64_t share = 8192;
  pool.run(ceil_div(a.count, share), [&](int64_t item) {
    const int64_t end = (item + 1) * share < a.count ? (item + 1) * share : a.count;
    for (int64_t i = item * share; i < end; i += kLanes) {
      const bool whole = i + kLanes <= end;
      F32 v = whole ? load(a.logits + i) : load_partial(a.logits + i, end - i, 0.0f);
      F32 e = exp16(div(sub(v, set1(a.most)), set1(a.temperature)));
      if (whole) store(a.out + i, e);
      else store_partial(a.out + i, e, end - i);
    }
  });
}
