#include "isa.h"

namespace samebits {
namespace {
#include "simd_scalar.h"

#include "math-inl.h"

#include "linear-inl.h"
#include "attention-inl.h"  // uses the products and bf16 rows of linear
#include "log_softmax-inl.h"
#include "rmsnorm-inl.h"
#include "rope-inl.h"
#include "silu_mul-inl.h"
}  // namespace

const KernelTable kScalarTable = {
    "scalar", "fma, twice", "integer multiply",
    pack_weights, linear, rmsnorm, rope_store,
    attention, silu_mul, log_softmax, exp_shifted};

}  // namespace samebits
