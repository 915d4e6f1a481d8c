// The operations that have one implementation per instruction set, as a table: dispatch is data.
#pragma once
#include "attention.h"
#include "linear.h"
#include "log_softmax.h"
#include "rmsnorm.h"
#include "rope.h"
#include "silu_mul.h"

namespace samebits {

struct KernelTable {
  const char* isa;
  const char* linear_bf16;  // the instruction that does the work, for `samebits info`
  const char* linear_int8;
  void (*pack_weights)(PackedMatrix& w, int64_t row0, int64_t rows, const float* source, ThreadPool& pool);
  void (*linear)(const LinearArgs& args, ThreadPool& pool, Buffer& scratch);
  void (*rmsnorm)(const RmsNormArgs& args, ThreadPool& pool);
  void (*rope_store)(const RopeStoreArgs& args, ThreadPool& pool);
  void (*attention)(const AttentionArgs& args, ThreadPool& pool, Buffer& scratch);
  void (*silu_mul)(const SiluMulArgs& args, ThreadPool& pool);
  void (*log_softmax)(const LogSoftmaxArgs& args, ThreadPool& pool);
  void (*exp_shifted)(const ExpShiftedArgs& args, ThreadPool& pool);
};

extern const KernelTable kScalarTable;
#if defined(__x86_64__)
extern const KernelTable kAvx2Table, kAvx512Table, kAvx512VnniTable, kAvx512Bf16Table;
#elif defined(__aarch64__)
extern const KernelTable kNeonTable;
#endif

// Tables that this machine can run, slowest first. The last is the default.
struct TableList {
  const KernelTable* tables[8];
  int count;
};
TableList available_tables();

}  // namespace samebits
