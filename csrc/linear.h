// Linear layer: out (M, N) = x (M, K) · Wᵀ, W packed.
//
// Order (docs/numerics.md 3.1), for each output alone:
//   fp32, bf16:  K is cut at multiples of kKBlock; within a block acc = fma(x[k], W[k], acc), k ascending, from +0;
//                block sums are added in ascending order.
//   int8:        K is cut at multiples of kInt8Block; in a block an exact int32 sum; y = fma(float(sum), scale of row and
//                block, y), blocks ascending; then y × channel scale.
// Vectors run across N and tiles across M, so neither enters the order of a sum.
#pragma once
#include "tensor.h"
#include "thread_pool.h"

namespace samebits {

struct LinearArgs {
  const float* x;  // (M, K)
  int64_t m;
  const PackedMatrix* w;
  float* out;     // (M, N)
  bool residual;  // out = out + y instead of out = y
};

// Row `row` of W as floats, as the profile stores it (docs/numerics.md 3.5, embedding).
void unpack_row(const PackedMatrix& w, int64_t row, float* out);

}  // namespace samebits
