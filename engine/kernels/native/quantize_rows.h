// Rows of activations rounded to 8 bits, with a scale for every 32.
//
// A block is rounded twice, to 127 and to 125 steps up to its largest magnitude, and the better one is kept: whole numbers
// n of x have the best scale x.n / n.n and leave |x|^2 - (x.n)^2 / n.n, so the larger (x.n)^2 / n.n wins (ADR 26). Nothing is
// fused where that changes a bit and sums have one order, so that all instruction sets choose alike.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

constexpr float kMostSteps[2] = {127.0f, 125.0f};
// The reciprocal of a tiny maximum would overflow; such a block is zero to every practical purpose.
constexpr float kTiniest = 1e-30f, kLargest = 3.4e38f;
constexpr int kBlocksAtOnce = kRowGroup;

// Of up to sixteen blocks.
struct RoundedBlocks {
  alignas(64) int8_t values[kBlocksAtOnce][2 * kBlock];  // whole numbers of the first rounding, of the second
  alignas(64) int32_t chosen[kBlocksAtOnce];             // where the better ones start: 0 or kBlock
  alignas(64) float scale[kBlocksAtOnce];                // what they are multiplied by; NaN where x isn't finite
  alignas(64) float sum[kBlocksAtOnce];                  // scale * their sum
  alignas(64) int32_t first[kBlocksAtOnce];              // the sum of their first half
  alignas(64) int32_t second[kBlocksAtOnce];
};

}  // namespace
}  // namespace pellucid

#if defined(__AVX512F__)
#include "roundings_avx512.h"
#else
#include "roundings_portable.h"
#endif

namespace pellucid {
namespace {

// One row; its blocks lie apart, those of its group between them.
inline void quantize_one(const float* x, int num_inputs, const QuantizedRows& out, int row) {
  const int num_blocks = num_inputs / kBlock, place = row % kRowGroup;
  const int64_t first_block = int64_t(row / kRowGroup) * num_blocks;
  // Copies, which what is written through bytes can't change.
  int8_t* const values = out.values;
  float *const scales = out.scales, *const sums = out.sums;
  int32_t *const corrections = out.corrections, *const half_corrections = out.half_corrections;
  RoundedBlocks rounded;
  for (int first = 0; first < num_blocks; first += kBlocksAtOnce) {
    const int count = num_blocks - first < kBlocksAtOnce ? num_blocks - first : kBlocksAtOnce;
    round_blocks(x + first * kBlock, kBlock, count, rounded);
    for (int b = 0; b < count; ++b) {
      int64_t block = first_block + first + b;
#if defined(__GNUC__)
      asm("" : "+r"(block));  // or the scalar stores are made of registers taken apart, which takes longer
#endif
      const int64_t at = block * kRowGroup + place;
      std::memcpy(values + at * kBlock, rounded.values[b] + rounded.chosen[b], kBlock);
      scales[at] = rounded.scale[b];
      sums[at] = rounded.sum[b];
      if (corrections) corrections[at] = -128 * (rounded.first[b] + rounded.second[b]);
      if (!half_corrections) continue;
      half_corrections[block * 2 * kRowGroup + place] = -32 * rounded.first[b];
      half_corrections[block * 2 * kRowGroup + kRowGroup + place] = -32 * rounded.second[b];
    }
  }
}

// Sixteen rows of one group, a block of all at a time: what is written for it is whole lines.
inline void quantize_group(const float* x, int num_inputs, const QuantizedRows& out, int first_row) {
  const int num_blocks = num_inputs / kBlock;
  const int64_t first_block = int64_t(first_row / kRowGroup) * num_blocks;
  RoundedBlocks rounded;
  for (int b = 0; b < num_blocks; ++b) {
    round_blocks(x + b * kBlock, num_inputs, kRowGroup, rounded);
    const int64_t at = (first_block + b) * kRowGroup;
    int8_t* values = out.values + at * kBlock;
    for (int row = 0; row < kRowGroup; ++row) {
      std::memcpy(values + row * kBlock, rounded.values[row] + rounded.chosen[row], kBlock);
    }
    std::memcpy(out.scales + at, rounded.scale, sizeof rounded.scale);
    std::memcpy(out.sums + at, rounded.sum, sizeof rounded.sum);
    if (int32_t* corrections = out.corrections) {
      for (int row = 0; row < kRowGroup; ++row) corrections[at + row] = -128 * (rounded.first[row] + rounded.second[row]);
    }
    if (int32_t* corrections = out.half_corrections) {
      for (int row = 0; row < kRowGroup; ++row) corrections[2 * at + row] = -32 * rounded.first[row];
      for (int row = 0; row < kRowGroup; ++row) corrections[2 * at + kRowGroup + row] = -32 * rounded.second[row];
    }
  }
}

void quantize_rows(const float* x, int num_inputs, int num_rows, const QuantizedRows& out, int first_row) {
  while (num_rows > 0) {
    const bool is_group = first_row % kRowGroup == 0 && num_rows >= kRowGroup;
    const int count = is_group ? kRowGroup : 1;
    if (is_group) quantize_group(x, num_inputs, out, first_row);
    if (!is_group) quantize_one(x, num_inputs, out, first_row);
    x += int64_t(count) * num_inputs;
    first_row += count;
    num_rows -= count;
  }
}

}  // namespace
}  // namespace pellucid
