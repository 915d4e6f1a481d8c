#include "dequant.h"

#include <bit>
#include <cstring>

namespace samebits {
namespace {

static_assert(std::endian::native == std::endian::little, "the file formats are little-endian and read in place");

constexpr size_t kSmall = 32;   // elements of a Q?_0 or Q?_1 block
constexpr size_t kSuper = 256;  // elements of a Q?_K block

template <typename T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// IEEE half to float. The exponent is rebiased in place; a denormal half gets its implied bit by an exact subtraction of
// two normal floats.
float widen_half(uint16_t half) {
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + ((127u - 15u) << 23);
  const uint32_t special = magnitude + ((255u - 31u) << 23);  // infinity and NaN
  const float denormal = std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f;
  const uint32_t finite = exponent == 0 ? std::bit_cast<uint32_t>(denormal) : normal;
  return std::bit_cast<float>((exponent == 0x0f800000u ? special : finite) | sign);
}

float half_at(const uint8_t* p) { return widen_half(load<uint16_t>(p)); }

void f32(const uint8_t* __restrict src, float* __restrict out, size_t n) { std::memcpy(out, src, n * sizeof(float)); }

void f16(const uint8_t* __restrict src, float* __restrict out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = half_at(src + 2 * i);
}

void bf16(const uint8_t* __restrict src, float* __restrict out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t{load<uint16_t>(src + 2 * i)} << 16;
    std::memcpy(out + i, &bits, sizeof bits);  // as bits: a NaN keeps its payload
  }
}

void q8_0(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  for (size_t i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Four bits an element: the low halves of 16 bytes are elements 0..15, the high halves 16..31.
void q4_0(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  const uint8_t* nibbles = block + 2;
  for (size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(int{nibbles[i]} % 16 - 8);
    out[i + 16] = d * static_cast<float>(nibbles[i] / 16 - 8);
  }
}

void q4_1(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const uint8_t* nibbles = block + 4;
  for (size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(nibbles[i] & 15) + m;
    out[i + 16] = d * static_cast<float>(nibbles[i] >> 4) + m;
  }
}

// The fifth bit of element i is bit i of a 32-bit word that precedes the nibbles.
struct FiveBits {
  uint32_t high;
  const uint8_t* nibbles;
  int low_half(size_t i) const { return static_cast<int>((nibbles[i] & 15u) | (high >> i & 1u) << 4); }
  int high_half(size_t i) const { return static_cast<int>(nibbles[i] >> 4 | (high >> (i + 16) & 1u) << 4); }
};

void q5_0(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  const FiveBits q{load<uint32_t>(block + 2), block + 6};
  for (size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(q.low_half(i) - 16);
    out[i + 16] = d * static_cast<float>(q.high_half(i) - 16);
  }
}

void q5_1(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const FiveBits q{load<uint32_t>(block + 4), block + 8};
  for (size_t i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(q.low_half(i)) + m;
    out[i + 16] = d * static_cast<float>(q.high_half(i)) + m;
  }
}

// Scale and minimum of the eight sub-blocks of Q4_K and Q5_K: 6 bits each in 12 bytes. Those of sub-blocks 0..3 are the
// low six bits of bytes 0..3 and 4..7; sub-blocks 4..7 take four bits from bytes 8..11 and the two bits left over above.
struct SubScales {
  const uint8_t* packed;
  int scale(size_t j) const { return j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4; }
  int minimum(size_t j) const { return j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | packed[j] >> 6 << 4; }
};

void q4_k(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const SubScales sub{block + 4};
  for (size_t j = 0; j < 8; ++j) {
    const float scale = d * static_cast<float>(sub.scale(j));
    const float minimum = dmin * static_cast<float>(sub.minimum(j));
    const uint8_t* nibbles = block + 16 + j / 2 * 32;  // shared by an even sub-block (low) and an odd one (high)
    const int shift = j % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      out[j * 32 + i] = scale * static_cast<float>(nibbles[i] >> shift & 15) - minimum;
    }
  }
}

void q5_k(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const SubScales sub{block + 4};
  const uint8_t* high = block + 16;  // bit j of byte i: the fifth bit of element i of sub-block j
  for (size_t j = 0; j < 8; ++j) {
    const float scale = d * static_cast<float>(sub.scale(j));
    const float minimum = dmin * static_cast<float>(sub.minimum(j));
    const uint8_t* nibbles = block + 48 + j / 2 * 32;
    const int shift = j % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      const int q = (nibbles[i] >> shift & 15) | (high[i] >> j & 1) << 4;
      out[j * 32 + i] = scale * static_cast<float>(q) - minimum;
    }
  }
}

// Two halves of 128 elements; in each, quarter k of 32 elements takes its low four bits from 64 bytes (quarters 0, 1 the
// low nibbles, 2, 3 the high ones) and its high two bits from bits 2k, 2k+1 of 32 bytes. A scale serves 16 elements.
void q6_k(const uint8_t* __restrict block, float* __restrict out) {
  const float d = half_at(block + 208);
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* low = block + half * 64;
    const uint8_t* high = block + 128 + half * 32;
    const uint8_t* scales = block + 192 + half * 8;
    for (size_t k = 0; k < 4; ++k) {
      const int low_shift = k < 2 ? 0 : 4;
      const int high_shift = static_cast<int>(2 * k);
      const uint8_t* nibbles = low + k % 2 * 32;
      for (size_t s = 0; s < 2; ++s) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[2 * k + s]));
        for (size_t i = 16 * s; i < 16 * s + 16; ++i) {
          const int q = (nibbles[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
          out[half * 128 + k * 32 + i] = scale * static_cast<float>(q - 32);
        }
      }
    }
  }
}

template <void (*Block)(const uint8_t*, float*), size_t Elements, size_t Bytes>
void blocks(const uint8_t* __restrict src, float* __restrict out, size_t n) {
  for (size_t b = 0; b < n / Elements; ++b) Block(src + b * Bytes, out + b * Elements);
}

struct Format {
  WeightType type;
  std::string_view name;
  size_t elements;  // of a block
  size_t bytes;     // of a block
  void (*run)(const uint8_t* __restrict src, float* __restrict out, size_t n);
};

template <void (*Block)(const uint8_t*, float*), size_t Elements, size_t Bytes>
constexpr Format quantized(WeightType type, std::string_view name) {
  return {type, name, Elements, Bytes, blocks<Block, Elements, Bytes>};
}

constexpr Format kFormats[] = {
    {WeightType::kF32, "F32", 1, 4, f32},
    {WeightType::kF16, "F16", 1, 2, f16},
    {WeightType::kBF16, "BF16", 1, 2, bf16},
    quantized<q8_0, kSmall, 34>(WeightType::kQ8_0, "Q8_0"),
    quantized<q4_0, kSmall, 18>(WeightType::kQ4_0, "Q4_0"),
    quantized<q4_1, kSmall, 20>(WeightType::kQ4_1, "Q4_1"),
    quantized<q5_0, kSmall, 22>(WeightType::kQ5_0, "Q5_0"),
    quantized<q5_1, kSmall, 24>(WeightType::kQ5_1, "Q5_1"),
    quantized<q4_k, kSuper, 144>(WeightType::kQ4_K, "Q4_K"),
    quantized<q5_k, kSuper, 176>(WeightType::kQ5_K, "Q5_K"),
    quantized<q6_k, kSuper, 210>(WeightType::kQ6_K, "Q6_K"),
};

}  // namespace

bool weight_type(std::string_view name, WeightType* type) {
  for (const Format& format : kFormats) {
    if (format.name == name) {
      *type = format.type;
      return true;
    }
  }
  return false;
}

bool dequantize(WeightType type, const uint8_t* src, size_t nbytes, float* out, size_t n) {
  const Format& format = kFormats[static_cast<size_t>(type)];
  if (n % format.elements != 0 || nbytes % format.bytes != 0 || n / format.elements != nbytes / format.bytes) return false;
  format.run(src, out, n);
  return true;
}

}  // namespace samebits
