// RMSNorm: y = (x · r) · weight, r = 1 / sqrt(mean(x²) + eps).
// Order (docs/numerics.md 3.2): sixteen lanes of acc = fma(x, x, acc), then the tree.
#pragma once
#include "tensor.h"
#include "thread_pool.h"

namespace samebits {

struct RmsNormArgs {
  const float* x;  // (rows, width)
  const float* weight;
  float eps;
  int64_t rows, width;
  float* out;  // (rows, width), may be x
};

}  // namespace samebits
