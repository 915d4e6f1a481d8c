#include "kernels.h"

namespace samebits {

TableList available_tables() {
  TableList list{{&kScalarTable}, 1};
#if defined(__x86_64__)
  __builtin_cpu_init();
  auto offer = [&list](bool runnable, const KernelTable& table) {
    if (runnable) list.tables[list.count++] = &table;
  };
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  offer(avx2, kAvx2Table);
  offer(avx512, kAvx512Table);
  offer(vnni, kAvx512VnniTable);
  offer(vnni && __builtin_cpu_supports("avx512bf16"), kAvx512Bf16Table);
#elif defined(__aarch64__)
  list.tables[list.count++] = &kNeonTable;  // part of the base instruction set
#endif
  return list;
}

}  // namespace samebits
