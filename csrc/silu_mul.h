// y = (g ÷ (1 + exp(−g))) × u, element by element (docs/numerics.md 3.5).
#pragma once
#include "tensor.h"
#include "thread_pool.h"

namespace samebits {

struct SiluMulArgs {
  const float* gate_up;  // (rows, 2 · width): g, then u
  int64_t rows, width;
  float* out;  // (rows, width)
};

}  // namespace samebits
