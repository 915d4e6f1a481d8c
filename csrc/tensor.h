// Storage shared by the operations: aligned memory, packed matrices, the paged KV cache.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace samebits {

constexpr int kLanes = 16;         // docs/numerics.md 1.2
constexpr int kKBlock = 512;       // 3.1
constexpr int kKeyBlock = 256;     // 3.4
constexpr int kSumBlock = 256;     // 3.5, log-softmax
constexpr int kInt8Block = 128;    // 3.1, int8

// Patterns of bfloat16 below this have a magnitude below 2^-55 (docs/numerics.md 1.1): exponent field 127 - 55 = 72.
constexpr int kBf16Least = 72 << 7;

enum class Profile : int { kFp32 = 0, kBf16 = 1, kInt8 = 2 };

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// 64-byte aligned memory. What it holds at first is not defined.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes) { reset(bytes); }
  void reset(size_t bytes) {
    size_ = size_t(ceil_div(int64_t(bytes ? bytes : 1), 64) * 64);
    data_.reset(std::aligned_alloc(64, size_));
    if (!data_) throw std::bad_alloc();
  }
  void grow(size_t bytes) {
    if (bytes > size_) reset(bytes);
  }
  template <class T>
  T* as() const { return static_cast<T*>(data_.get()); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  size_t size_ = 0;
};

// A weight matrix W (rows N, cols K) in panels of 16 rows: panel p holds, for each unit of K, the 16 rows' units side
// by side, 32 bits each. A unit is one float, a pair of bf16 (earlier element high) or four int8 with 128 added (earlier element
// low).
struct PackedMatrix {
  Profile profile;
  int64_t rows, cols;
  Buffer data;
  Buffer scales;  // int8: float per row

  static int64_t unit(Profile p) { return p == Profile::kFp32 ? 1 : p == Profile::kBf16 ? 2 : 4; }
  int64_t units() const { return ceil_div(cols, unit(profile)); }
  int64_t panels() const { return ceil_div(rows, kLanes); }
  uint32_t* panel(int64_t p) const { return data.as<uint32_t>() + p * units() * kLanes; }

  PackedMatrix(Profile profile, int64_t rows, int64_t cols);
};

// Keys and values of all layers in pages. Within a page and kv head, keys come in groups of G = min(16, page size):
//   K: [group][head_dim (pairs of dims in bf16)][G]       so that sixteen keys are sixteen lanes
//   V: [group][G][padded head_dim] floats, or in bf16 [group][G/2][padded head_dim] pairs of keys (G = 1: single bf16)
// What was not stored is not defined, and attention lets none of it reach a result.
struct KvCache {
  bool bf16;
  int64_t layers, pages, page_size, kv_heads, head_dim;
  Buffer keys, values;

  int64_t padded_dim() const { return ceil_div(head_dim, kLanes) * kLanes; }
  int64_t group() const { return page_size < kLanes ? page_size : kLanes; }
  // bytes of one page of one layer and one kv head
  int64_t key_bytes() const { return page_size * head_dim * (bf16 ? 2 : 4); }
  int64_t value_bytes() const { return page_size * padded_dim() * (bf16 ? 2 : 4); }
  char* key_page(int64_t layer, int64_t page, int64_t head) const {
    return keys.as<char>() + ((layer * pages + page) * kv_heads + head) * key_bytes();
  }
  char* value_page(int64_t layer, int64_t page, int64_t head) const {
    return values.as<char>() + ((layer * pages + page) * kv_heads + head) * value_bytes();
  }

  KvCache(bool bf16, int64_t layers, int64_t pages, int64_t page_size, int64_t kv_heads, int64_t head_dim);
};

// out = bf16(x) of docs/numerics.md 1.1, as floats; out may be x.
void round_bf16(const float* x, int64_t n, float* out);

}  // namespace samebits
