// What gate and up leave in tiles, multiplied and rounded for down: rows stay side by side.
#pragma once
#include "exponential.h"
#include "paired_rows.h"

namespace pellucid {
namespace {

// silu(gate) * up to 2e-4 of itself, a tenth of what rounding to bfloat16 takes.
inline __m512 gated(const float* gate, const float* up) {
  const __m512 g = _mm512_load_ps(gate), power = power_of_two(_mm512_mul_ps(g, _mm512_set1_ps(-1.44269504f)));
  const __m512 share = _mm512_rcp14_ps(_mm512_add_ps(_mm512_set1_ps(1.0f), power));
  return _mm512_mul_ps(_mm512_mul_ps(g, share), _mm512_load_ps(up));
}

void gate_tiles(const float* gate, const float* up, int num_rows, int num_blocks, uint16_t* pairs, int blocks_a_row,
                int first_block) {
  const PairingTask task{nullptr, 0, num_blocks, blocks_a_row, first_block, pairs};
  for (int row = 0; row < num_rows; row += kRowGroup) {
    const int count = num_rows - row < kRowGroup ? num_rows - row : kRowGroup;
    for (int b = first_block; b < first_block + num_blocks; ++b) {
      __m512i lines[kPanel];
#pragma GCC unroll 16
      for (int p = 0; p < kPanel; ++p, gate += 2 * kRowGroup, up += 2 * kRowGroup) {
        const __m256i even = __m256i(_mm512_cvtneps_pbh(gated(gate, up)));
        const __m256i odd = __m256i(_mm512_cvtneps_pbh(gated(gate + kRowGroup, up + kRowGroup)));
        lines[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
      }
      put_block(task, task.group(row), b, __mmask16((1u << count) - 1), lines);
    }
  }
}

}  // namespace
}  // namespace pellucid
