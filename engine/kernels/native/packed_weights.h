// Weights repacked once at load into panels of 16 outputs, in the precision of the file, and room for quantised rows.
#pragma once
#include <cstdint>
#include <string>

#include "aligned_memory.h"
#include "kernel_table.h"

namespace pellucid {

struct OwnedMatrix {
  PackedMatrix view;
  AlignedMemory values;
};

// Room for quantised activations.
struct OwnedRows {
  OwnedRows() = default;
  OwnedRows(int64_t num_rows, int64_t num_inputs, MemoryArena* arena = nullptr);
  QuantizedRows view{};
  AlignedMemory values, scales, sums, corrections, half_corrections, halved_starts;
};

// The form that a matrix of an encoding takes for these kernels; throws std::invalid_argument for an encoding without kernels or a row that
// is no multiple of its blocks.
Format format_of(const KernelTable& kernels, const std::string& encoding, int num_inputs);

void allocate_matrix(OwnedMatrix& matrix, Format format, int num_outputs, int num_inputs,
                     MemoryArena* arena = nullptr);

// Panels first..first+count-1 of a matrix, as a matrix of their own.
PackedMatrix panels_of(const PackedMatrix& matrix, int first, int count);

// Packs rows of `encoding` as outputs first_output... No value changes: every one of them has an exact packed form; but 4-bit
// ones for bfloat16 become what is multiplied, see int4_panel.h.
void pack_rows(OwnedMatrix& matrix, const std::string& encoding, const uint8_t* data, int first_output, int num_rows);

// Writes one output's weights as floats: the embedding look-up of a packed matrix.
void unpack_row(const PackedMatrix& matrix, int output, float* out);

}  // namespace pellucid
