// Products of bfloat16 rows with weights in the tile registers of AMX.
//
// A tile of weights is sixteen outputs times a block of 32 inputs, one of rows the same block of sixteen rows. A sum is
// one chain of tile products over all blocks in order, in float32 inside its accumulator, so that it doesn't depend on
// how many rows or panels are multiplied beside it. Weights in float16 are rounded to bfloat16 as they are read, those of 4
// bits opened; offsets of blocks are weights of the blocks' sums, behind the others.
#pragma once
#include "matmul_half.h"
#include "matmul_int4.h"

namespace pellucid {
namespace {

template <class Sink>
void multiply_panels(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int first, int last, const Sink& sink) {
  if (num_rows == 0) return;
  const TileScope tiles(kWholeTiles);
  const auto multiply = w.format == Format::kInt4Tiles         ? multiply_int4<false, Sink>
                        : w.format == Format::kInt4OffsetTiles ? multiply_int4<true, Sink>
                        : w.format == Format::kFloat16Tiles    ? multiply_rows<Format::kFloat16Tiles, Sink>
                                                               : multiply_rows<Format::kBFloat16Tiles, Sink>;
  for (int panel = first; panel < last;) panel += multiply(w, pairs, num_rows, panel, last, sink);
}

void matmul_tiled(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int first, int last, float* y,
                  int64_t stride) {
  multiply_panels(w, pairs, num_rows, first, last, RowSink{w, y, stride});
}

void matmul_into_tiles(const PackedMatrix& w, const uint16_t* pairs, int num_rows, int first, int last, float* tiles) {
  multiply_panels(w, pairs, num_rows, first, last, TileSink{tiles, first, last - first});
}

}  // namespace
}  // namespace pellucid
