#include "tensor.h"

#include <cstring>

#include "linear.h"

namespace samebits {

PackedMatrix::PackedMatrix(Profile profile, int64_t rows, int64_t cols) : profile(profile), rows(rows), cols(cols) {
  data.reset(size_t(panels() * units() * kLanes * 4));
  // Lanes beyond the last row are computed and dropped; zero keeps them finite.
  if (rows % kLanes) std::memset(panel(panels() - 1), 0, size_t(units() * kLanes * 4));
  if (profile != Profile::kInt8) return;
  scales.reset(size_t(panels() * kLanes * 4));
  std::memset(scales.as<char>(), 0, scales.size());
}

void unpack_row(const PackedMatrix& w, int64_t row, float* out) {
  const uint32_t* lane = w.panel(row / kLanes) + row % kLanes;
  const int64_t per_unit = PackedMatrix::unit(w.profile);
  for (int64_t k = 0; k < w.cols; ++k) {
    const uint32_t unit = lane[k / per_unit * kLanes];
    if (w.profile == Profile::kInt8) {
      out[k] = float(int(unit >> (8 * (k % 4)) & 0xff) - 128) * w.scales.as<float>()[row];
      continue;
    }
    const uint32_t bits = w.profile == Profile::kFp32 ? unit : k % 2 == 0 ? unit & 0xffff0000u : unit << 16;
    std::memcpy(out + k, &bits, 4);
  }
}

void round_bf16(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    const uint32_t kept = (rounded & 0x7fffffffu) < (uint32_t(kBf16Least) << 16) ? 0u : rounded;
    const uint32_t result = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : kept;
    std::memcpy(out + i, &result, 4);
  }
}

KvCache::KvCache(bool bf16, int64_t layers, int64_t pages, int64_t page_size, int64_t kv_heads, int64_t head_dim)
    : bf16(bf16), layers(layers), pages(pages), page_size(page_size), kv_heads(kv_heads), head_dim(head_dim) {
  keys.reset(size_t(layers * pages * kv_heads * key_bytes()));
  values.reset(size_t(layers * pages * kv_heads * value_bytes()));
}

}  // namespace samebits
