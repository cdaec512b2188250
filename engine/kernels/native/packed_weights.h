// Weights repacked once at load into panels of 16 outputs, in the precision of the file, and memory for both operands.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernel_table.h"

namespace pellucid {

struct FreeMemory {
  size_t mapped_bytes = 0;  // 0: from the heap
  void operator()(uint8_t* p) const;
};

// Zeroed memory; a large piece is aligned to huge pages and advised to use them, and takes memory only where touched.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(size_t bytes);
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t, FreeMemory> data_;
  size_t size_ = 0;
};

struct OwnedMatrix {
  PackedMatrix view;
  AlignedMemory values;
};

// Room for quantised activations.
struct OwnedRows {
  OwnedRows() = default;
  OwnedRows(int64_t num_rows, int64_t num_inputs);
  QuantizedRows view{};
  AlignedMemory values, scales, sums, corrections;
};

// Packs rows of `encoding` (`F32`, `F16`, `BF16`, `Q8_0`, `Q4_0`, `Q4_1`) as outputs first_output...; throws std::invalid_argument for
// anything else. No value changes: every one of them has an exact packed form.
void allocate_matrix(OwnedMatrix& matrix, Format format, int num_outputs, int num_inputs);
void pack_rows(OwnedMatrix& matrix, const std::string& encoding, const uint8_t* data, int first_output, int num_rows);
Format format_of(const std::string& encoding, int num_inputs);

// Writes one output's weights as floats: the embedding look-up of a packed matrix.
void unpack_row(const PackedMatrix& matrix, int output, float* out);

}  // namespace pellucid
