// Rows of activations rounded to bfloat16, in the pairs of inputs that a tile product takes.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// Rounds x into place `row` of x's pairs, to nearest, ties to even; what isn't finite stays so.
void pair_row(const float* x, int num_inputs, const RoundedRows& out, int row) {
  const int64_t blocks = num_inputs / kBlock;
  uint16_t* pairs = out.pairs + row / kRowGroup * blocks * kGroupBlock + row % kRowGroup * 2;
  const __m512i places = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                            _mm512_set1_epi32(kRowGroup));
  for (int64_t b = 0; b < blocks; ++b, x += kBlock, pairs += kGroupBlock) {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + kBlock / 2), _mm512_loadu_ps(x));
    _mm512_i32scatter_epi32(pairs, places, __m512i(rounded), 4);
  }
}

}  // namespace
}  // namespace pellucid
