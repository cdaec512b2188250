// A tile of sums [16 outputs][16 rows] written as rows of outputs.
#pragma once
#include "transpose.h"

namespace pellucid {
namespace {

// The first num_rows rows; y points to the first row's first output of the panel, of which the mask's are written.
inline void write_outputs(const float* sums, int num_rows, __mmask16 mask, float* y, int64_t stride) {
  if (num_rows <= 2) {
    const __m512i places = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                              _mm512_set1_epi32(kRowGroup));
    for (int r = 0; r < num_rows; ++r) {
      _mm512_mask_storeu_ps(y + r * stride, mask, _mm512_i32gather_ps(places, sums + r, 4));
    }
    return;
  }
  __m512 lines[kPanel];
#pragma GCC unroll 16
  for (int o = 0; o < kPanel; ++o) lines[o] = _mm512_load_ps(sums + o * kRowGroup);
  transpose(lines);
#pragma GCC unroll 16
  for (int r = 0; r < kRowGroup; ++r) {
    if (r < num_rows) _mm512_mask_storeu_ps(y + r * stride, mask, lines[r]);
  }
}

}  // namespace
}  // namespace pellucid
