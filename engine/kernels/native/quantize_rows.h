// Rows of activations rounded to 8 bits, with a scale for every 32.
//
// A block is rounded twice, to 127 and to 125 steps up to its largest magnitude (or 120 and 118, see matmul_halved.h), and the
// better one is kept: whole numbers n of x have the best scale x.n / n.n and leave |x|^2 - (x.n)^2 / n.n, so the larger
// (x.n)^2 / n.n wins (ADR 26). Nothing is fused where that changes a bit and sums have one order, so that all instruction sets
// choose alike.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

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

  const int8_t* better(int block) const { return values[block] + chosen[block]; }
};

}  // namespace
}  // namespace pellucid

#include "halved_starts.h"
#if defined(__AVX512F__)
#include "roundings_avx512.h"
#else
#include "roundings_portable.h"
#endif

namespace pellucid {
namespace {

// What one call rounds: blocks first_block... of rows first_row... of rows that have blocks_a_row.
struct RoundingTask {
  const float* x;  // [num_rows][stride]
  int64_t stride;
  int num_rows, num_blocks, blocks_a_row, first_row, first_block;
  const float* most;  // steps of both roundings

  const float* input(int row, int block) const { return x + row * stride + block * kBlock; }
  // Where the row's block lies, counted in blocks of a group.
  int64_t group_block(int row, int block) const {
    return int64_t((first_row + row) / kRowGroup) * blocks_a_row + first_block + block;
  }
};

// Blocks of one row, which lie kGroupBlockBytes apart.
inline void quantize_one(const RoundingTask& task, int row, const QuantizedRows& out) {
  const int place = (task.first_row + row) % kRowGroup;
  // Copies, which what is written through bytes can't change.
  int8_t* const values = out.values;
  float *const scales = out.scales, *const sums = out.sums;
  int32_t *const corrections = out.corrections, *const half_corrections = out.half_corrections;
  int32_t* const starts = out.halved_starts;
  RoundedBlocks rounded;
  for (int first = 0; first < task.num_blocks; first += kBlocksAtOnce) {
    const int count = task.num_blocks - first < kBlocksAtOnce ? task.num_blocks - first : kBlocksAtOnce;
    round_blocks(task.input(row, first), kBlock, count, task.most, rounded);
    for (int b = 0; b < count; ++b) {
      int64_t block = task.group_block(row, first + b);
#if defined(__GNUC__)
      asm("" : "+r"(block));  // or the scalar stores are made of registers taken apart, which takes longer
#endif
      const int64_t at = block * kRowGroup + place;
      std::memcpy(values + at * kBlock, rounded.better(b), kBlock);
      scales[at] = rounded.scale[b];
      sums[at] = rounded.sum[b];
      if (corrections) corrections[at] = -128 * (rounded.first[b] + rounded.second[b]);
      if (starts) starts[at] = halved_start(rounded.better(b));
      if (!half_corrections) continue;
      half_corrections[block * 2 * kRowGroup + place] = -32 * rounded.first[b];
      half_corrections[block * 2 * kRowGroup + kRowGroup + place] = -32 * rounded.second[b];
    }
  }
}

// Several rows of one group, a block of all at a time: what is written for sixteen of them is whole lines.
inline void quantize_group(const RoundingTask& task, int first, int num_rows, const QuantizedRows& out) {
  RoundedBlocks rounded;
  for (int b = 0; b < task.num_blocks; ++b) {
    round_blocks(task.input(first, b), task.stride, num_rows, task.most, rounded);
    const int64_t at = task.group_block(first, b) * kRowGroup + (task.first_row + first) % kRowGroup;
    int8_t* values = out.values + at * kBlock;
    for (int row = 0; row < num_rows; ++row) {
      std::memcpy(values + row * kBlock, rounded.better(row), kBlock);
    }
    std::memcpy(out.scales + at, rounded.scale, size_t(num_rows) * sizeof(float));
    std::memcpy(out.sums + at, rounded.sum, size_t(num_rows) * sizeof(float));
    if (int32_t* corrections = out.corrections) {
      for (int row = 0; row < num_rows; ++row) corrections[at + row] = -128 * (rounded.first[row] + rounded.second[row]);
    }
    if (out.halved_starts) set_halved_starts(num_rows, [&](int row) { return rounded.better(row); }, out.halved_starts + at);
    if (out.half_corrections) {
      int32_t* corrections = out.half_corrections + task.group_block(first, b) * 2 * kRowGroup + at % kRowGroup;
      for (int row = 0; row < num_rows; ++row) corrections[row] = -32 * rounded.first[row];
      for (int row = 0; row < num_rows; ++row) corrections[kRowGroup + row] = -32 * rounded.second[row];
    }
  }
}

void quantize_blocks(const float* x, int64_t stride, int num_rows, int num_blocks, const QuantizedRows& out,
                     int blocks_a_row, int first_row, int first_block) {
  const float* most = out.halved_starts ? kHalvedSteps : kMostSteps;
  const RoundingTask task{x, stride, num_rows, num_blocks, blocks_a_row, first_row, first_block, most};
  for (int row = 0; row < num_rows;) {
    const int rest = kRowGroup - (first_row + row) % kRowGroup, count = num_rows - row < rest ? num_rows - row : rest;
    // As many blocks at once as there are, across the rows or along each.
    if (count >= num_blocks || count == kRowGroup) {
      quantize_group(task, row, count, out);
    } else {
      for (int r = row; r < row + count; ++r) quantize_one(task, r, out);
    }
    row += count;
  }
}

}  // namespace
}  // namespace pellucid
