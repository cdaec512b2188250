#include "rest_blocks.h"

#include <cstring>

namespace pellucid {
namespace {

// A block's place in the order of scales: larger ones first, of equal ones the lower index. NaN, which makes the row NaN
// whatever is added to it, counts as infinite.
struct Rank {
  float scale;
  int block;

  bool is_before(const Rank& other) const {
    return scale > other.scale || (scale == other.scale && block < other.block);
  }
};

// A row whose blocks have been rounded.
struct RoundedRow {
  const float* x;
  const int8_t* values;  // of block 0
  const float* scales;
  int num_blocks;

  Rank rank(int block) const {
    const float scale = scales[int64_t(block) * kRowGroup];
    return {scale == scale ? scale : __builtin_inff(), block};
  }

  // The last one of the `count` blocks with the largest scales.
  Rank last_chosen(int count) const {
    Rank last{__builtin_inff(), -1};
    for (int i = 0; i < count; ++i) {
      Rank next{-__builtin_inff(), num_blocks};
      for (int b = 0; b < num_blocks; ++b) {
        const Rank candidate = rank(b);
        if (last.is_before(candidate) && candidate.is_before(next)) next = candidate;
      }
      last = next;
    }
    return last;
  }

  // Not fused, which the build sees to: the same on all instruction sets.
  void leave_over(int block, float* rest) const {
    const float scale = scales[int64_t(block) * kRowGroup];
    const int8_t* n = values + int64_t(block) * kRowGroup * kBlock;
    for (int i = 0; i < kBlock; ++i) rest[i] = x[block * kBlock + i] - scale * float(n[i]);
  }
};

// Rounds up to a group of blocks, as rows of one block, into the values and scales of out.
void round_together(const KernelTable& kernels, const float (*rests)[kBlock], int count, RestBlock* out) {
  alignas(64) int8_t values[kRowGroup][kBlock];
  alignas(64) float scales[kRowGroup], sums[kRowGroup];
  alignas(64) int32_t corrections[kRowGroup], half_corrections[2][kRowGroup];
  kernels.quantize_blocks(rests[0], kBlock, count, 1, {values[0], scales, sums, corrections, half_corrections[0]}, 1, 0, 0);
  for (int i = 0; i < count; ++i) {
    std::memcpy(out[i].values, values[i], kBlock);
    out[i].scale = scales[i];
    out[i].sum = sums[i];
    out[i].correction = corrections[i];
    for (int half = 0; half < 2; ++half) out[i].half_corrections[half] = half_corrections[half][i];
  }
}

}  // namespace

void round_rests(const KernelTable& kernels, const float* x, int64_t stride, int num_rows, int num_blocks,
                 const QuantizedRows& rounded, int first_row, RestBlock* out) {
  const int count = num_rests(num_blocks);
  for (int row = first_row; row < first_row + num_rows; ++row, x += stride, out += count) {
    const int64_t at = int64_t(row / kRowGroup) * num_blocks * kRowGroup + row % kRowGroup;
    const RoundedRow given{x, rounded.values + at * kBlock, rounded.scales + at, num_blocks};
    const Rank last = given.last_chosen(count);
    alignas(64) float rests[kRowGroup][kBlock];
    for (int block = 0, chosen = 0; chosen < count; ++block) {
      if (last.is_before(given.rank(block))) continue;
      given.leave_over(block, rests[chosen % kRowGroup]);
      out[chosen++].block = block;
      const int waiting = (chosen - 1) % kRowGroup + 1;
      if (waiting == kRowGroup || chosen == count) round_together(kernels, rests, waiting, out + chosen - waiting);
    }
  }
}

}  // namespace pellucid
