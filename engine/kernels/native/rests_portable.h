// Products of rests with a block of a panel, for any machine; see rests.h.
#pragma once
#include "matmul_portable.h"
#include "rest_runs.h"

namespace pellucid {
namespace {

// Rests of one block, added to their rows' totals.
template <Format F>
inline void add_rests_of_block(const BlockView& block, const RowRest* rests, int count, float (*totals)[kPanel]) {
  uint8_t integers[kBlock * kPanel];
  open_integers<F>(block, integers);
  for (int i = 0; i < count; ++i) {
    RestBlock rest = *rests[i].rest;
    // Lies as the first row of a group.
    int32_t half_corrections[2 * kRowGroup] = {};
    for (int half = 0; half < 2; ++half) half_corrections[half * kRowGroup] = rest.half_corrections[half];
    const QuantizedRows row{rest.values, &rest.scale, &rest.sum, &rest.correction, half_corrections};
    add_block<F>(block, integers, row, 0, 0, totals[rests[i].row]);
  }
}

}  // namespace
}  // namespace pellucid
