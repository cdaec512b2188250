// Products of rests with a block of a panel, in AVX-512; see rests.h.
#pragma once
#include "blocks_avx512.h"
#include "rest_runs.h"

namespace pellucid {
namespace {

inline __m512i add_rest_quad(__m512i dot, __m512i weights, const RestBlock& rest, int quad) {
  int32_t four;
  std::memcpy(&four, rest.values + 4 * quad, 4);
  return _mm512_dpbusd_epi32(dot, weights, _mm512_set1_epi32(four));
}

// Rests of one block, added to their rows' totals. Rows don't wait for each other, so their chains run side by side.
template <Format F>
inline void add_rests_of_block(const BlockView& block, const RowRest* rests, int count, float (*totals)[kPanel]) {
  const __m512i weights[8] = {integers_of<F, 0>(block.values), integers_of<F, 1>(block.values),
                              integers_of<F, 2>(block.values), integers_of<F, 3>(block.values),
                              integers_of<F, 4>(block.values), integers_of<F, 5>(block.values),
                              integers_of<F, 6>(block.values), integers_of<F, 7>(block.values)};
  __m512 scales[num_scales(F)], offset;
  for (int half = 0; half < num_scales(F); ++half) scales[half] = scales_of<F>(block, half);
  if constexpr (bias_of(F) == 0) offset = offsets_of<F>(block);
  for (int i = 0; i < count; ++i) {
    const RestBlock& rest = *rests[i].rest;
    float* out = totals[rests[i].row];
    __m512 total = _mm512_load_ps(out);
    if constexpr (bias_of(F) == 0) total = _mm512_fmadd_ps(offset, _mm512_set1_ps(rest.sum), total);
    for (int half = 0; half < num_scales(F); ++half) {
      constexpr int kQuads = 8 / num_scales(F);
      __m512i dot = _mm512_setzero_si512();
      if constexpr (bias_of(F) != 0) {
        dot = _mm512_set1_epi32(num_scales(F) == 2 ? rest.half_corrections[half] : rest.correction);
      }
#pragma GCC unroll 8
      for (int quad = half * kQuads; quad < (half + 1) * kQuads; ++quad) dot = add_rest_quad(dot, weights[quad], rest, quad);
      const __m512 both = _mm512_mul_ps(scales[half], _mm512_set1_ps(rest.scale));
      total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), both, total);
    }
    _mm512_store_ps(out, total);
  }
}

}  // namespace
}  // namespace pellucid
