// Attention of query rows over a paged KV cache: one definition for prefill, chunked prefill and decode.
//
// Order (docs/numerics.md 3.4): keys in blocks of kKeyBlock at absolute positions. In a block: scores are chains over
// head_dim; the sum of exponentials has sixteen lanes; the weighted values are chains over keys. Blocks are combined in
// ascending order. Vectors run across sixteen keys (scores) or sixteen dims (values), so blocks, heads and
// rows may be computed anywhere in any order.
#pragma once
#include "tensor.h"
#include "thread_pool.h"

namespace samebits {

struct AttentionArgs {
  const float* q;  // (rows, heads · head_dim), rotated
  int64_t rows, heads;
  const KvCache* cache;
  int64_t layer;
  const int32_t* positions;     // (rows): the row attends keys 0 … position; ascending within a sequence
  const int32_t* seq_starts;    // (sequences + 1)
  const int32_t* block_tables;  // (sequences, table_width): pages of each sequence
  int64_t sequences, table_width;
  float* out;  // (rows, heads · head_dim)
};

}  // namespace samebits
