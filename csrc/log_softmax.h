// Log-softmax of rows of logits, and the shifted exponentials that sampling starts from (docs/numerics.md 3.5, 4.4).
#pragma once
#include "tensor.h"
#include "thread_pool.h"

namespace samebits {

struct LogSoftmaxArgs {
  const float* logits;  // (rows, vocab)
  int64_t rows, vocab;
  float* out;                        // (rows, vocab), or with columns (rows, wanted)
  const int32_t* columns = nullptr;  // (rows, wanted), each below vocab: the only ones that are wanted
  int64_t wanted = 0;
};

// out[i] = exp((logits[i] − most) ÷ temperature)
struct ExpShiftedArgs {
  const float* logits;
  int64_t count;
  float most, temperature;
  float* out;
};

// Section 1.4, for x ≥ 1; a NaN gives a NaN.
float log_exact(float x);

}  // namespace samebits
