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

void pair_row(const float* x, int num_inputs, uint16_t* pairs, int row) {
  const int64_t blocks = num_inputs / kBlock;
  const __m512i places = _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
  pairs += row / kRowGroup * blocks * kGroupBlockPairs + row % kRowGroup * 2;
  for (int64_t b = 0; b < blocks; ++b, x += kBlock, pairs += kGroupBlockPairs) {
    _mm512_i32scatter_epi32(pairs, places, round_to_bfloat16(x), 4);
  }
}

}  // namespace
}  // namespace pellucid
