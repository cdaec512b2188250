// Sixteen lines of sixteen numbers of 32 bits turned over in registers.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// Transposes sixteen lines of sixteen floats.
inline void transpose(__m512 (&lines)[kPanel]) {
  __m512 pairs[kPanel], quads[kPanel];
#pragma GCC unroll 8
  for (int i = 0; i < kPanel; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(lines[i], lines[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(lines[i], lines[i + 1]);
  }
  // quads[4q + j]: in every fourth of the register a column's rows 4q..4q+3, the j-th column of that fourth.
#pragma GCC unroll 4
  for (int q = 0; q < kPanel; q += 4) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512d first = _mm512_castps_pd(pairs[q + i]), second = _mm512_castps_pd(pairs[q + i + 2]);
      quads[q + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
      quads[q + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 even = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0x88);
    const __m512 odd = _mm512_shuffle_f32x4(quads[j], quads[4 + j], 0xdd);
    const __m512 later_even = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0x88);
    const __m512 later_odd = _mm512_shuffle_f32x4(quads[8 + j], quads[12 + j], 0xdd);
    lines[j] = _mm512_shuffle_f32x4(even, later_even, 0x88);
    lines[4 + j] = _mm512_shuffle_f32x4(odd, later_odd, 0x88);
    lines[8 + j] = _mm512_shuffle_f32x4(even, later_even, 0xdd);
    lines[12 + j] = _mm512_shuffle_f32x4(odd, later_odd, 0xdd);
  }
}

}  // namespace
}  // namespace pellucid
