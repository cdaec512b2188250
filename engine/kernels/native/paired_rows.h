// Rows of activations rounded to bfloat16, in the pairs of inputs that a tile product takes.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

constexpr int kGroupBlockPairs = kRowGroup * kBlock;  // values of a block of a group of rows

// To nearest, ties to even; what isn't finite stays so.
inline __m512i round_to_bfloat16(const float* x) {
  return __m512i(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + kBlock / 2), _mm512_loadu_ps(x)));
}

void pair_blocks(const float* x, int64_t stride, int num_rows, int num_blocks, uint16_t* pairs, int blocks_a_row,
                 int first_row, int first_block) {
  const __m512i places = _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
  for (int row = first_row; row < first_row + num_rows; ++row, x += stride) {
    const int64_t block = int64_t(row / kRowGroup) * blocks_a_row + first_block;
    uint16_t* out = pairs + block * kGroupBlockPairs + row % kRowGroup * 2;
    for (int b = 0; b < num_blocks; ++b, out += kGroupBlockPairs) {
      _mm512_i32scatter_epi32(out, places, round_to_bfloat16(x + b * kBlock), 4);
    }
  }
}

}  // namespace
}  // namespace pellucid
