// Weights of a file, as floats.
//
// Element order is that of the file: blocks of a row follow each other, rows follow each other. In each block, with d, m
// the block's half-precision scales widened to float (exactly) and q, sc, mn the integers it stores:
//
//   F32, F16, BF16   the value, widened
//   Q8_0             d * q                      q in -128..127      32 elements, 34 bytes
//   Q4_0             d * (q - 8)                q in 0..15          32 elements, 18 bytes
//   Q5_0             d * (q - 16)               q in 0..31          32 elements, 22 bytes
//   Q4_1, Q5_1       (d * q) + m                                    32 elements, 20 and 24 bytes
//   Q4_K, Q5_K       ((d * sc) * q) - (dmin * mn)   sc, mn in 0..63   256 elements, 144 and 176 bytes
//   Q6_K             (d * sc) * (q - 32)        sc in -128..127     256 elements, 210 bytes
//
// Every product is exact: a half has 11 significant bits, sc at most 7, q at most 8. So one rounding at most is made for
// an element, by the + or - where there is one; and every result is a multiple of 2^-24, so that no denormal arises and a
// flush-to-zero mode cannot matter. The round-to-nearest-even mode is the caller's to set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace samebits {

enum class WeightType { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K };

// Finds a type by the name GGUF uses ("Q4_K"). False where there is none.
bool weight_type(std::string_view name, WeightType* type);

// Writes n floats. False, with nothing written, unless n is a whole number of blocks of exactly nbytes bytes.
// src needs no alignment.
bool dequantize(WeightType type, const uint8_t* src, size_t nbytes, float* out, size_t n);

}  // namespace samebits
