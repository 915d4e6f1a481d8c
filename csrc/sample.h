// Choosing tokens from logits: exact orders and integer sums (docs/numerics.md 3.5, 4).
#pragma once
#include <cstdint>

#include "kernels.h"

namespace samebits {

// How to draw from one row, docs/numerics.md 4 steps 4 to 8.
struct Draw {
  float temperature;  // below 2^-17: the argmax
  int64_t top_k;      // 0: off
  double top_p, min_p;
  int64_t seed;
  uint32_t token_index, choice;
};

struct SampleArgs {
  const float* logits;  // (rows, vocab), after penalties and bias
  int64_t rows, vocab;
  const Draw* draws;  // (rows)
  int32_t* out;       // (rows)
};

// out[i] = allowed[i] ? logits[i] : -infinity; out may be logits.
void exclude(const float* logits, const bool* allowed, int64_t vocab, float* out);
int64_t argmax(const float* logits, int64_t vocab);
// The first k ids in the order (logit descending, id ascending).
void topk(const float* logits, int64_t vocab, int64_t k, int32_t* ids, float* values);
// A row is one thread's work, so rows share the pool and none can tell.
void sample(const SampleArgs& args, const KernelTable& table, ThreadPool& pool, Buffer& scratch);
// Philox4x32-10, the first two output words as one number.
uint64_t philox(int64_t seed, uint32_t token_index, uint32_t choice);

}  // namespace samebits
