// Products of rests with a block of a panel, in AVX2; see rests.h.
#pragma once
#include "matmul_avx2.h"
#include "rest_runs.h"

namespace pellucid {
namespace {

// A rest times half a panel: eight outputs.
template <Format F>
inline __m256 add_rest(const BlockView& block, const RestBlock& rest, int outputs, __m256 total) {
  if constexpr (bias_of(F) == 0) {
    total = _mm256_fmadd_ps(offsets_of<F>(block, outputs), _mm256_set1_ps(rest.sum), total);
  }
  for (int half = 0; half < num_scales(F); ++half) {
    const int32_t correction = num_scales(F) == 2 ? rest.half_corrections[half] : bias_of(F) ? rest.correction : 0;
    __m256i dot[1] = {_mm256_set1_epi32(correction)};
    constexpr int kStep = quads_in_16_bits(F), kQuads = 8 / num_scales(F);
    for (int quad = half * kQuads; quad < (half + 1) * kQuads; quad += kStep) {
      add_quads<F, 1>(block.values + 32 * outputs, rest.values, quad, quad + kStep, dot);
    }
    const __m256 both = _mm256_mul_ps(scales_of<F>(block, half, outputs), _mm256_set1_ps(rest.scale));
    total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[0]), both, total);
  }
  return total;
}

// Rests of one block, added to their rows' totals.
template <Format F>
inline void add_rests_of_block(const BlockView& block, const RowRest* rests, int count, float (*totals)[kPanel]) {
  for (int i = 0; i < count; ++i) {
    for (int outputs = 0; outputs < 2; ++outputs) {
      float* out = totals[rests[i].row] + 8 * outputs;
      _mm256_store_ps(out, add_rest<F>(block, *rests[i].rest, outputs, _mm256_load_ps(out)));
    }
  }
}

}  // namespace
}  // namespace pellucid
