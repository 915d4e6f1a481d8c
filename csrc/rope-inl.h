// Body of rope.h for one instruction set.

SB_INLINE void rotate_head(const float* x, const float* cos, const float* sin, int64_t half, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F32 a = load(x + i), b = load(x + half + i), c = load(cos + i), s = load(sin + i);
    store(out + i, fma(a, c, sub(set1(-0.0f), mul(b, s))));
    store(out + half + i, fma(b, c, mul(a, s)));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    out[i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
    out[half + i] = __builtin_fmaf(b, cos[i], a * sin[i]);
  }
}

SB_INLINE void store_key(const KvCache& c, const float* key, char* page, int64_t offset) {
  const int64_t group = c.group(), lane = offset % group;
  const int64_t base = (offset / group) * group * c.head_dim;  // elements before this group
  if (!c.bf16) {
    float* to = reinterpret_cast<float*>(page) + base;
    for (int64_t d = 0; d < c.head_dim; ++d) to[d * group + lane] = key[d];
    return;
  }
  uint32_t* to = reinterpret_cast<uint32_t*>(page) + base / 2;
  uint32_t pairs[16];
  for (int64_t d = 0; d < c.head_dim; d += 2 * kLanes) {
    const int64_t rest = c.head_dim - d < 2 * kLanes ? c.head_dim - d : 2 * kLanes;
    bf16_row(key + d, rest, pairs);
    for (int64_t j = 0; j < rest / 2; ++j) to[(d / 2 + j) * group + lane] = pairs[j];
  }
}

SB_INLINE void store_value(const KvCache& c, const float* value, char* page, int64_t offset) {
  const int64_t width = c.padded_dim();
  if (!c.bf16) {
    float* to = reinterpret_cast<float*>(page) + offset * width;
    for (int64_t d = 0; d < c.head_dim; ++d) to[d] = value[d];
    return;
  }
  uint32_t bits[16];
  uint16_t* to = reinterpret_cast<uint16_t*>(page);
  for (int64_t d = 0; d < c.head_dim; d += kLanes) {
    const int64_t rest = c.head_dim - d < kLanes ? c.head_dim - d : kLanes;
    store_u(bits, bf16_bits(rest == kLanes ? load(value + d) : load_partial(value + d, rest, 0.0f)));
    for (int64_t j = 0; j < rest; ++j) {
      // In a pair of keys the even one is the high half: the second uint16 on a little-endian machine.
      const int64_t at = c.page_size == 1 ? d + j : ((offset / 2) * width + d + j) * 2 + (offset % 2 == 0);
      to[at] = uint16_t(bits[j]);
    }
  }
}

SB_INLINE void rope_store_row(const RopeStoreArgs& a, int64_t row) {
  const KvCache& c = *a.cache;
  const int64_t dim = c.head_dim, half = dim / 2;
  const float* q = a.qkv + row * (a.heads + 2 * c.kv_heads) * dim;
  const float *k = q + a.heads * dim, *v = k + c.kv_heads * dim;
  const float *cos = a.cos + a.positions[row] * half, *sin = a.sin + a.positions[row] * half;
  for (int64_t h = 0; h < a.heads; ++h)
    rotate_head(q + h * dim, cos, sin, half, a.q_out + (row * a.heads + h) * dim);
  const int64_t page = a.slots[row] / c.page_size, offset = a.slots[row] % c.page_size;
  float key[1024];  // head_dim is at most 1024, checked by the binding
  for (int64_t h = 0; h < c.kv_heads; ++h) {
    rotate_head(k + h * dim, cos, sin, half, key);
    store_key(c, key, c.key_page(a.layer, page, h), offset);
    store_value(c, v + h * dim, c.value_page(a.layer, page, h), offset);
  }
}

inline void rope_store(const RopeStoreArgs& a, ThreadPool& pool) {
  pool.run_rows(a.rows, 8, [&](int64_t row) { rope_store_row(a, row); });
}
