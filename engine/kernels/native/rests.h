// Adds the products of rests, which rest_blocks.h makes, to those of the rows that they are rests of.
//
// A row's rests are added in ascending order of their blocks, with the operations that a product of its rows has, whatever
// other rows there are.
#pragma once
#if defined(__AVX512VNNI__)
#include "rests_vnni.h"
#elif defined(__AVX2__)
#include "rests_avx2.h"
#else
#include "rests_portable.h"
#endif

namespace pellucid {
namespace {

// Of known width where that is a whole panel.
inline void copy_outputs(float* to, const float* from, int width) {
  if (width == kPanel) {
    std::memcpy(to, from, kPanel * sizeof(float));
  } else {
    std::memcpy(to, from, size_t(width) * sizeof(float));
  }
}

// Rests of one panel, added to y [num_rows][stride] of the panel's outputs.
template <Format F>
inline void add_panel_rests(const PackedMatrix& w, const RestRuns& runs, int num_rows, int panel, float* y, int64_t stride) {
  const int left = w.num_outputs - panel * kPanel, width = left < kPanel ? left : kPanel;
  alignas(64) float totals[kRestRows][kPanel];
  for (int row = 0; row < num_rows; ++row) copy_outputs(totals[row], y + row * stride, width);
  int first = 0;
  for (const RestRuns::Run& run : runs) {
    add_rests_of_block<F>(block_of<F>(w, panel, run.block), runs.found() + first, run.stop - first, totals);
    first = run.stop;
  }
  for (int row = 0; row < num_rows; ++row) copy_outputs(y + row * stride, totals[row], width);
}

template <Format F>
void add_rests_of(const PackedMatrix& w, const RestBlock* x, int num_rows, int first, int last, float* y, int64_t stride) {
  const int rests_a_row = num_rests(num_blocks(w));
  for (int row = 0; row < num_rows; row += kRestRows) {
    const int count = num_rows - row < kRestRows ? num_rows - row : kRestRows;
    RestRuns runs(x + int64_t(row) * rests_a_row, count, rests_a_row);
    while (runs.next()) {
      for (int panel = first; panel < last; ++panel) {
        add_panel_rests<F>(w, runs, count, panel, y + row * stride + panel * kPanel, stride);
      }
    }
  }
}

void add_rests(const PackedMatrix& w, const RestBlock* x, int num_rows, int first, int last, float* y, int64_t stride) {
  switch (w.format) {
    case Format::kUint4: return add_rests_of<Format::kUint4>(w, x, num_rows, first, last, y, stride);
    case Format::kUint5: return add_rests_of<Format::kUint5>(w, x, num_rows, first, last, y, stride);
    case Format::kUint4K: return add_rests_of<Format::kUint4K>(w, x, num_rows, first, last, y, stride);
    case Format::kUint5K: return add_rests_of<Format::kUint5K>(w, x, num_rows, first, last, y, stride);
    case Format::kUint6K: return add_rests_of<Format::kUint6K>(w, x, num_rows, first, last, y, stride);
    default: return add_rests_of<Format::kUint8>(w, x, num_rows, first, last, y, stride);
  }
}

}  // namespace
}  // namespace pellucid
