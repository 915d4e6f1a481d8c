// Body of silu_mul.h for one instruction set.

SB_INLINE F32 silu_mul16(F32 g, F32 u) {
  return mul(div(g, add(set1(1.0f), exp16(sub(set1(-0.0f), g)))), u);
}

inline void silu_mul(const SiluMulArgs& a, ThreadPool& pool) {
  pool.run_rows(a.rows, 2, [&](int64_t row) {
    const float *g = a.gate_up + row * 2 * a.width, *u = g + a.width;
    float* out = a.out + row * a.width;
    int64_t i = 0;
    for (; i + kLanes <= a.width; i += kLanes) store(out + i, silu_mul16(load(g + i), load(u + i)));
    if (i < a.width) {
      const int64_t rest = a.width - i;
      store_partial(out + i, silu_mul16(load_partial(g + i, rest, 0.0f), load_partial(u + i, rest, 0.0f)), rest);
    }
  });
}
