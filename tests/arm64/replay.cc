// Runs recorded operations on one instruction set, without Python: replay ISA THREADS CASES RESULTS.
//
// CASES holds records until its end, little-endian. A record: the name of an operation (16 bytes, padded with zeros), the
// number of integers and of arrays (two uint32), the integers (int64 each), then for each array its size in bytes
// (uint64) and its bytes. RESULTS gets, for each output of each record, its size in bytes (uint64) and its bytes.
// Which integers and arrays an operation takes is what its function below reads. Sizes are trusted: the cases come from
// test_neon.py.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "dequant.h"
#include "kernels.h"
#include "sample.h"

namespace {

using namespace samebits;

struct Record {
  std::string name;
  std::vector<int64_t> integers;
  std::vector<Buffer> arrays;
  std::vector<size_t> sizes;

  int64_t operator[](size_t i) const { return integers.at(i); }
  Profile profile() const { return Profile(int(integers.at(0))); }
  template <class T>
  T* get(size_t i) const { return arrays.at(i).as<T>(); }
};

struct Machine {
  const KernelTable* table;
  ThreadPool pool;
  Buffer scratch;
  std::FILE* results;

  template <class T>
  void put(const T* values, int64_t count) {
    const uint64_t bytes = uint64_t(count) * sizeof(T);
    if (std::fwrite(&bytes, sizeof bytes, 1, results) != 1 || std::fwrite(values, 1, bytes, results) != bytes)
      throw std::runtime_error("results: cannot be written");
  }
};

// What an output holds before it is written: a NaN, so that an element left out shows.
std::vector<float> blank(int64_t count) { return std::vector<float>(size_t(count), __builtin_nanf("")); }

PackedMatrix pack(const Record& r, int64_t rows, int64_t cols, int64_t split, size_t array, Machine& m) {
  PackedMatrix w(r.profile(), rows, cols);
  m.table->pack_weights(w, 0, split, r.get<float>(array), m.pool);
  m.table->pack_weights(w, split, rows - split, r.get<float>(array) + split * cols, m.pool);
  return w;
}

// profile M N K residual split; x w out
void run_linear(const Record& r, Machine& m) {
  const PackedMatrix w = pack(r, r[2], r[3], r[5], 1, m);
  m.table->linear({r.get<float>(0), r[1], &w, r.get<float>(2), r[4] != 0}, m.pool, m.scratch);
  m.put(r.get<float>(2), r[1] * r[2]);
}

// profile T N K; ids w
void run_embedding(const Record& r, Machine& m) {
  const PackedMatrix w = pack(r, r[2], r[3], r[2] / 2, 1, m);
  std::vector<float> out = blank(r[1] * r[3]);
  for (int64_t t = 0; t < r[1]; ++t) unpack_row(w, r.get<int32_t>(0)[t], out.data() + t * r[3]);
  m.put(out.data(), r[1] * r[3]);
}

// rows width; x weight eps
void run_rmsnorm(const Record& r, Machine& m) {
  std::vector<float> out = blank(r[0] * r[1]);
  m.table->rmsnorm({r.get<float>(0), r.get<float>(1), *r.get<float>(2), r[0], r[1], out.data()}, m.pool);
  m.put(out.data(), r[0] * r[1]);
}

// profile pages page_size kv_heads head_dim heads stored rows sequences table_width;
// qkv positions slots cos sin, all of the stored rows; chosen rows, their positions, seq_starts, block_tables
void run_attention(const Record& r, Machine& m) {
  const KvCache cache(r.profile() != Profile::kFp32, 2, r[1], r[2], r[3], r[4]);
  std::memset(cache.keys.as<char>(), 0xff, cache.keys.size());  // NaN, which may reach no result
  std::memset(cache.values.as<char>(), 0xff, cache.values.size());
  const int64_t heads = r[5], width = heads * r[4], rows = r[7], layer = 1;
  std::vector<float> stored = blank(r[6] * width), q = blank(rows * width), out = blank(rows * width);
  m.table->rope_store({r.get<float>(0), r[6], heads, r.get<int32_t>(1), r.get<int64_t>(2), r.get<float>(3),
                       r.get<float>(4), &cache, layer, stored.data()},
                      m.pool);
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(q.data() + i * width, stored.data() + r.get<int32_t>(5)[i] * width, size_t(width) * 4);
  m.table->attention({q.data(), rows, heads, &cache, layer, r.get<int32_t>(6), r.get<int32_t>(7), r.get<int32_t>(8), r[8],
                      r[9], out.data()},
                     m.pool, m.scratch);
  m.put(stored.data(), r[6] * width);
  m.put(out.data(), rows * width);
}

// rows width; gate_up
void run_silu_mul(const Record& r, Machine& m) {
  std::vector<float> out = blank(r[0] * r[1]);
  m.table->silu_mul({r.get<float>(0), r[0], r[1], out.data()}, m.pool);
  m.put(out.data(), r[0] * r[1]);
}

// rows vocab; logits
void run_log_softmax(const Record& r, Machine& m) {
  std::vector<float> out = blank(r[0] * r[1]);
  m.table->log_softmax({r.get<float>(0), r[0], r[1], out.data()}, m.pool);
  m.put(out.data(), r[0] * r[1]);
}

// count; logits, most and temperature
void run_exp_shifted(const Record& r, Machine& m) {
  std::vector<float> out = blank(r[0]);
  m.table->exp_shifted({r.get<float>(0), r[0], r.get<float>(1)[0], r.get<float>(1)[1], out.data()}, m.pool);
  m.put(out.data(), r[0]);
}

// draws vocab, then top_k seed token_index choice of each draw; logits (draws, vocab), temperatures, (top_p, min_p)
void run_sample(const Record& r, Machine& m) {
  std::vector<Draw> draws;
  std::vector<int32_t> ids(size_t(r[0]), -1);
  for (int64_t i = 0; i < r[0]; ++i) {
    const int64_t* of = r.integers.data() + 2 + 4 * i;
    const double* p = r.get<double>(2) + 2 * i;
    draws.push_back({r.get<float>(1)[i], of[0], p[0], p[1], of[1], uint32_t(of[2]), uint32_t(of[3])});
  }
  sample({r.get<float>(0), r[0], r[1], draws.data(), ids.data()}, *m.table, m.pool, m.scratch);
  m.put(ids.data(), r[0]);
}

// vocab k; logits
void run_topk(const Record& r, Machine& m) {
  std::vector<int32_t> ids(size_t(r[1]), -1);
  std::vector<float> values = blank(r[1]);
  topk(r.get<float>(0), r[0], r[1], ids.data(), values.data());
  m.put(ids.data(), r[1]);
  m.put(values.data(), r[1]);
}

// elements; type name, bytes
void run_dequantize(const Record& r, Machine& m) {
  WeightType type;
  std::vector<float> out = blank(r[0]);
  if (!weight_type(std::string(r.get<char>(0), r.sizes.at(0)), &type) ||
      !dequantize(type, r.get<uint8_t>(1), r.sizes.at(1), out.data(), out.size()))
    throw std::runtime_error("dequantize: unknown type or wrong size");
  m.put(out.data(), r[0]);
}

struct Operation {
  const char* name;
  void (*run)(const Record& r, Machine& m);
};
constexpr Operation kOperations[] = {
    {"linear", run_linear},           {"embedding", run_embedding},     {"rmsnorm", run_rmsnorm},
    {"attention", run_attention},     {"silu_mul", run_silu_mul},       {"log_softmax", run_log_softmax},
    {"exp_shifted", run_exp_shifted}, {"sample", run_sample},           {"topk", run_topk},
    {"dequantize", run_dequantize},
};

void take(std::FILE* cases, void* to, size_t bytes) {
  if (std::fread(to, 1, bytes, cases) != bytes) throw std::runtime_error("cases: cut short");
}

bool next_record(std::FILE* cases, Record& r) {
  char name[16];
  const size_t got = std::fread(name, 1, sizeof name, cases);
  if (got == 0 && std::feof(cases)) return false;
  if (got != sizeof name) throw std::runtime_error("cases: cut short");
  uint32_t counts[2];
  take(cases, counts, sizeof counts);
  r = {std::string(name, strnlen(name, sizeof name)), std::vector<int64_t>(counts[0]), {}, {}};
  take(cases, r.integers.data(), counts[0] * sizeof(int64_t));
  for (uint32_t i = 0; i < counts[1]; ++i) {
    uint64_t bytes;
    take(cases, &bytes, sizeof bytes);
    take(cases, r.arrays.emplace_back(bytes).as<void>(), bytes);
    r.sizes.push_back(bytes);
  }
  return true;
}

// The caller's floating-point control: flush denormals, round towards zero. Nothing of it may reach a result.
#if defined(__aarch64__)
constexpr uint64_t kHostile = uint64_t{1} << 24 | uint64_t{3} << 22;
uint64_t control() { uint64_t x; asm volatile("mrs %0, fpcr" : "=r"(x)); return x; }
void set_control(uint64_t x) { asm volatile("msr fpcr, %0" ::"r"(x) : "memory"); }
#else
constexpr uint64_t kHostile = 0xffc0;
uint64_t control() { return __builtin_ia32_stmxcsr(); }
void set_control(uint64_t x) { __builtin_ia32_ldmxcsr(uint32_t(x)); }
#endif

void run(const Record& r, Machine& m) {
  for (const Operation& operation : kOperations) {
    if (r.name != operation.name) continue;
    const uint64_t before = control();
    set_control(kHostile);
    {
      FloatEnvironment environment;
      operation.run(r, m);
    }
    const uint64_t after = control();
    set_control(before);
    if ((after & kHostile) != kHostile) throw std::runtime_error("the caller's floating-point control was not restored");
    return;
  }
  throw std::runtime_error("no operation " + r.name);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::runtime_error("usage: replay ISA THREADS CASES RESULTS");
  Machine m{nullptr, ThreadPool(std::stoi(argv[2])), {}, std::fopen(argv[4], "wb")};
  const TableList list = available_tables();
  for (int i = 0; i < list.count; ++i)
    if (std::strcmp(list.tables[i]->isa, argv[1]) == 0) m.table = list.tables[i];
  std::FILE* cases = std::fopen(argv[3], "rb");
  if (!m.table || !cases || !m.results) throw std::runtime_error("no such instruction set, or a file cannot be opened");
  for (Record r; next_record(cases, r);) run(r, m);
  if (std::fclose(m.results) != 0) throw std::runtime_error("results: cannot be written");
  std::fclose(cases);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "replay: %s\n", error.what());
  return 1;
}
