// What the rounding of a row left over, rounded a second time, in the blocks where it left over most.
//
// A block's error goes with its scale. An eighth of the blocks, those with the largest scales, hold most of the error of
// a whole row.
#pragma once
#include "kernel_table.h"

namespace pellucid {

// Rounds what is left over of rows x [num_rows][stride], which quantize_blocks has rounded into rows first_row... of
// `rounded`, into out [num_rows][num_rests(num_blocks)]. The blocks of a row are a function of that row alone.
void round_rests(const KernelTable& kernels, const float* x, int64_t stride, int num_rows, int num_blocks,
                 const QuantizedRows& rounded, int first_row, RestBlock* out);

}  // namespace pellucid
