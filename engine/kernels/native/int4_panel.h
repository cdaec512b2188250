// How a panel of 4-bit weights for bfloat16 tiles lies in memory:
//   {uint16 codes [block][16]; uint16 values [block][4][32]; uint16 offsets [block / 32][16][blocks of these 32]}.
// The i-th nibble of word j of quad p is what input j of output 4p + i is multiplied by, in sign and magnitude (-8 is -0).
// A code is a scale's sign, five bits of exponent and ten of mantissa, as in float16, but for other magnitudes and without
// subnormal numbers. Offsets are bfloat16; where blocks are odd in number, each output has an unused place behind its last.
#pragma once
#include <cstring>

#include "half_float.h"
#include "kernel_table.h"

namespace pellucid {
namespace {

constexpr int kLeastScaleExponent = -20;
constexpr float kLeastScale = 0x1p-20f, kScaleLimit = 0x1p12f;  // smaller scales count as 0, larger ones have no code

constexpr int64_t int4_values_at(int64_t num_blocks) { return (num_blocks * kPanel * 2 + 63) / 64 * 64; }
constexpr int64_t int4_offsets_at(int64_t num_blocks) { return int4_values_at(num_blocks) + num_blocks * 256; }
// Offsets of an output in the tile that begins with `block`.
constexpr int64_t offsets_in_tile(int64_t num_blocks, int64_t block) {
  const int64_t rest = num_blocks - block;
  return rest >= kBlock ? kBlock : (rest + 1) / 2 * 2;
}
constexpr int64_t int4_offset_at(int64_t num_blocks, int64_t block, int output) {
  const int64_t first = block / kBlock * kBlock;
  return int4_offsets_at(num_blocks) + 2 * (first * kPanel + output * offsets_in_tile(num_blocks, first) + block - first);
}
constexpr int64_t int4_panel_bytes(bool has_offsets, int64_t num_blocks) {
  const int64_t end = int4_offsets_at(num_blocks);
  return has_offsets ? (end + 2 * kPanel * ((num_blocks + 1) / 2 * 2) + 63) / 64 * 64 : end;
}

inline uint16_t float_to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A scale other than 0 whose code exists.
inline bool has_scale_code(float scale) {
  const float size = scale < 0 ? -scale : scale;
  return size >= kLeastScale && size < kScaleLimit;
}

inline uint16_t scale_code(float scale) {
  uint32_t bits;
  std::memcpy(&bits, &scale, 4);
  const uint32_t exponent = (bits >> 23 & 255) - uint32_t(127 + kLeastScaleExponent);
  return uint16_t(bits >> 31 << 15 | exponent << 10 | (bits >> 13 & 1023));
}

inline float scale_of_code(uint16_t code) {
  const uint32_t exponent = (code >> 10 & 31u) + uint32_t(127 + kLeastScaleExponent);
  const uint32_t bits = uint32_t(code >> 15) << 31 | exponent << 23 | uint32_t(code & 1023) << 13;
  float scale;
  std::memcpy(&scale, &bits, 4);
  return scale;
}

}  // namespace
}  // namespace pellucid
