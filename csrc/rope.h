// Rotary embedding of q and k (docs/numerics.md 3.3) and storing of k and v in the cache.
#pragma once
#include "tensor.h"
#include "thread_pool.h"

namespace samebits {

struct RopeStoreArgs {
  const float* qkv;  // (rows, (heads + 2 · kv_heads) · head_dim)
  int64_t rows, heads;
  const int32_t* positions;  // (rows)
  const int64_t* slots;      // (rows): page · page_size + offset
  const float *cos, *sin;    // (positions, head_dim / 2)
  const KvCache* cache;
  int64_t layer;
  float* q_out;  // (rows, heads · head_dim)
};

}  // namespace samebits
