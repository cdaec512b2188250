#include "packed_weights.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "file_blocks.h"
#include "int4_panel.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

float bfloat16_to_float(uint16_t value) {
  const uint32_t bits = uint32_t(value) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

size_t bytes_a_panel(const PackedMatrix& view) {
  if (is_int4_tiled(view.format)) {
    return size_t(int4_panel_bytes(view.format == Format::kInt4OffsetTiles, num_blocks(view)));
  }
  if (!is_float(view.format) && !is_tiled(view.format)) return size_t(panel_bytes(view.format, num_blocks(view)));
  return size_t(view.num_inputs) * kPanel * size_t(value_bytes(view.format));
}

void pack_float_row(const PackedMatrix& view, uint8_t* values, const uint8_t* row, int output) {
  const size_t size = size_t(value_bytes(view.format));
  const int panel = output / kPanel, lane = output % kPanel;
  uint8_t* const first = values + size_t(panel) * size_t(view.num_inputs) * kPanel * size;
  if (is_tiled(view.format)) {
    for (int k = 0; k < view.num_inputs; k += kBlock) {
      std::memcpy(first + (size_t(k) * kPanel + size_t(lane) * kBlock) * size, row + size_t(k) * size, kBlock * size);
    }
    return;
  }
  uint8_t* out = first + size_t(lane) * size;
  for (int k = 0; k < view.num_inputs; ++k) std::memcpy(out + size_t(k) * kPanel * size, row + size_t(k) * size, size);
}

void pack_integers(Format format, const uint8_t (&integers)[kBlock], int lane, uint8_t* values) {
  if (format == Format::kUint8) {
    for (int i = 0; i < kBlock; ++i) values[64 * (i / 4) + lane * 4 + i % 4] = integers[i];
    return;
  }
  for (int i = 0; i < kBlock / 2; ++i) {
    values[64 * (i / 4) + lane * 4 + i % 4] = uint8_t((integers[i] & 15) | integers[i + kBlock / 2] << 4);
  }
  const int bits = high_bits(format);
  for (int i = 0; bits && i < kBlock; ++i) {
    const int quad = i / 4, place = bits * quad;
    values[256 + 64 * (place / 8) + lane * 4 + i % 4] |= uint8_t((integers[i] >> 4) << place % 8);
  }
}

void pack_block(const PackedMatrix& view, uint8_t* values, const FileBlock& block, int output, int64_t index) {
  const int lane = output % kPanel;
  uint8_t* panel = values + output / kPanel * panel_bytes(view.format, num_blocks(view));
  const BlockPlace place = block_place(view.format, index);
  if (view.format == Format::kUint8) {
    const float scale = half_to_float(block.scale);
    std::memcpy(panel + place.header + 4 * lane, &scale, 4);
  } else {
    std::memcpy(panel + place.header + 2 * lane, &block.scale, 2);
    std::memcpy(panel + place.header + 2 * (kPanel + lane), &block.offset, 2);
  }
  if (has_super_blocks(view.format)) {
    panel[place.small_scales + lane] = block.small_scales[0];
    panel[place.small_scales + kPanel + lane] = block.small_scales[1];
  }
  pack_integers(view.format, block.integers, lane, panel + place.values);
}

void put_half(uint8_t* at, uint16_t half) { std::memcpy(at, &half, 2); }

void pack_int4_block(const PackedMatrix& view, uint8_t* values, const FileBlock& block, int output, int64_t index) {
  const int lane = output % kPanel;
  const bool has_offsets = view.format == Format::kInt4OffsetTiles;
  uint8_t* panel = values + output / kPanel * int4_panel_bytes(has_offsets, num_blocks(view));
  const float given = half_to_float(block.scale), scale = has_scale_code(given) ? given : 0;
  if (!(given < kScaleLimit && given > -kScaleLimit)) {
    throw std::invalid_argument("a block's scale is too large for bfloat16 tiles");
  }
  put_half(panel + 2 * (index * kPanel + lane), scale == 0 ? 0 : scale_code(scale));
  uint8_t* words = panel + int4_values_at(num_blocks(view)) + index * 256 + lane / 4 * 64;
  for (int i = 0; i < kBlock; ++i) {
    const int value = scale == 0 ? 0 : block.integers[i] - 8;
    uint16_t word;
    std::memcpy(&word, words + 2 * i, 2);
    put_half(words + 2 * i, uint16_t(word | (value < 0 ? 8 | (-value & 7) : value) << lane % 4 * 4));
  }
  const float offset = half_to_float(block.offset) + 8 * scale;
  if (has_offsets) put_half(panel + int4_offset_at(num_blocks(view), index, lane), float_to_bfloat16(offset));
}

void unpack_int4(const PackedMatrix& matrix, int output, float* out) {
  const bool has_offsets = matrix.format == Format::kInt4OffsetTiles;
  const int64_t blocks = num_blocks(matrix), lane = output % kPanel;
  const uint8_t* panel =
      static_cast<const uint8_t*>(matrix.values) + output / kPanel * int4_panel_bytes(has_offsets, blocks);
  auto half_at = [&](int64_t at) {
    uint16_t half;
    std::memcpy(&half, panel + at, 2);
    return half;
  };
  for (int64_t b = 0; b < blocks; ++b) {
    const float scale = scale_of_code(half_at(2 * (b * kPanel + lane)));
    const float offset = has_offsets ? bfloat16_to_float(half_at(int4_offset_at(blocks, b, int(lane)))) : 0.0f;
    for (int i = 0; i < kBlock; ++i) {
      const int word = half_at(int4_values_at(blocks) + b * 256 + lane / 4 * 64 + 2 * i) >> lane % 4 * 4 & 15;
      const int value = word < 8 ? word : word == 8 ? -8 : 8 - word;
      *out++ = bfloat16_to_float(float_to_bfloat16(scale * float(value))) + offset;
    }
  }
}

template <Format F>
void unpack_blocks(const PackedMatrix& matrix, int output, float* out) {
  const int lane = output % kPanel;
  for (int b = 0; b < num_blocks(matrix); ++b, out += kBlock) {
    const BlockView block = block_of<F>(matrix, output / kPanel, b);
    const float offset = bias_of(F) ? 0.0f : offset_of<F>(block, lane);
    for (int i = 0; i < kBlock; ++i) {
      const float product = scale_of<F>(block, lane, i / kPanel) * float(integer_of<F>(block, lane, i) - bias_of(F));
      out[i] = bias_of(F) ? product : product + offset;
    }
  }
}

void unpack_floats(const PackedMatrix& matrix, int output, float* out) {
  const size_t panel = size_t(output / kPanel) * size_t(matrix.num_inputs) * kPanel, lane = size_t(output % kPanel);
  const size_t first = panel + lane;
  if (matrix.format == Format::kFloat32) {
    const float* in = static_cast<const float*>(matrix.values) + first;
    for (int k = 0; k < matrix.num_inputs; ++k) out[k] = in[size_t(k) * kPanel];
    return;
  }
  const uint16_t* in = static_cast<const uint16_t*>(matrix.values);
  const bool is_half = matrix.format == Format::kFloat16 || matrix.format == Format::kFloat16Tiles;
  for (int k = 0; k < matrix.num_inputs; ++k) {
    const size_t in_tiles = panel + size_t(k - k % kBlock) * kPanel + lane * kBlock + size_t(k % kBlock);
    const uint16_t value = in[is_tiled(matrix.format) ? in_tiles : first + size_t(k) * kPanel];
    out[k] = is_half ? half_to_float(value) : bfloat16_to_float(value);
  }
}

}  // namespace

OwnedRows::OwnedRows(int64_t num_rows, int64_t num_inputs, MemoryArena* arena) {
  const int64_t groups = (num_rows + kRowGroup - 1) / kRowGroup, places = groups * kRowGroup * (num_inputs / kBlock);
  values = AlignedMemory(size_t(places) * kBlock, arena);
  scales = AlignedMemory(size_t(places) * sizeof(float), arena);
  sums = AlignedMemory(size_t(places) * sizeof(float), arena);
  corrections = AlignedMemory(size_t(places) * sizeof(int32_t), arena);
  half_corrections = AlignedMemory(size_t(2 * places) * sizeof(int32_t), arena);
  halved_starts = AlignedMemory(size_t(places) * sizeof(int32_t), arena);
  view = {reinterpret_cast<int8_t*>(values.data()), reinterpret_cast<float*>(scales.data()),
          reinterpret_cast<float*>(sums.data()), reinterpret_cast<int32_t*>(corrections.data()),
          reinterpret_cast<int32_t*>(half_corrections.data()), reinterpret_cast<int32_t*>(halved_starts.data())};
}

Format format_of(const KernelTable& kernels, const std::string& encoding, int num_inputs) {
  const bool in_tiles = kernels.matmul_tiled && num_inputs % kBlock == 0;
  if (encoding == "F32") return Format::kFloat32;
  if (encoding == "BF16") return in_tiles ? Format::kBFloat16Tiles : Format::kBFloat16;
  if (encoding == "F16") return in_tiles ? Format::kFloat16Tiles : Format::kFloat16;
  const BlockEncoding* known = find_block_encoding(encoding);
  if (!known) throw std::invalid_argument("no native kernel for " + encoding);
  if (num_inputs % known->super_block_inputs) {
    throw std::invalid_argument("rows must be a multiple of " + std::to_string(known->super_block_inputs) + " inputs");
  }
  if (is_tiled(known->format) && !kernels.matmul_tiled) {
    throw std::invalid_argument(std::string("the kernels of ") + kernels.name + " have no tiles for " + encoding);
  }
  return known->format;
}

void allocate_matrix(OwnedMatrix& matrix, Format format, int num_outputs, int num_inputs, MemoryArena* arena) {
  PackedMatrix& view = matrix.view;
  view.format = format;
  view.num_outputs = num_outputs;
  view.num_inputs = num_inputs;
  matrix.values = AlignedMemory(size_t(num_panels(view)) * bytes_a_panel(view), arena);
  view.values = matrix.values.data();
}

PackedMatrix panels_of(const PackedMatrix& matrix, int first, int count) {
  PackedMatrix some = matrix;
  some.num_outputs = std::min(count * kPanel, matrix.num_outputs - first * kPanel);
  some.values = static_cast<const uint8_t*>(matrix.values) + size_t(first) * bytes_a_panel(matrix);
  return some;
}

void pack_rows(OwnedMatrix& matrix, const std::string& encoding, const uint8_t* data, int first_output, int num_rows) {
  const PackedMatrix& view = matrix.view;
  uint8_t* values = matrix.values.data();
  if (is_float(view.format) || (is_tiled(view.format) && !is_int4_tiled(view.format))) {
    const size_t row_bytes = size_t(view.num_inputs) * size_t(value_bytes(view.format));
    for (int r = 0; r < num_rows; ++r) pack_float_row(view, values, data + size_t(r) * row_bytes, first_output + r);
    return;
  }
  const BlockEncoding* found = find_block_encoding(encoding);
  const bool is_int4 = is_int4_tiled(view.format);
  if (!found || found->format != view.format) throw std::invalid_argument("mixed formats in one matrix");
  const BlockEncoding& known = *found;
  const size_t row_bytes = size_t(view.num_inputs / known.super_block_inputs) * size_t(known.super_block_bytes);
  for (int r = 0; r < num_rows; ++r) {
    const uint8_t* row = data + size_t(r) * row_bytes;
    for (int b = 0; b < num_blocks(view); ++b) {
      (is_int4 ? pack_int4_block : pack_block)(view, values, known.decode(row, b), first_output + r, b);
    }
  }
}

void unpack_row(const PackedMatrix& matrix, int output, float* out) {
  switch (matrix.format) {
    case Format::kUint4: return unpack_blocks<Format::kUint4>(matrix, output, out);
    case Format::kUint5: return unpack_blocks<Format::kUint5>(matrix, output, out);
    case Format::kUint8: return unpack_blocks<Format::kUint8>(matrix, output, out);
    case Format::kUint4K: return unpack_blocks<Format::kUint4K>(matrix, output, out);
    case Format::kUint5K: return unpack_blocks<Format::kUint5K>(matrix, output, out);
    case Format::kUint6K: return unpack_blocks<Format::kUint6K>(matrix, output, out);
    case Format::kInt4Tiles:
    case Format::kInt4OffsetTiles: return unpack_int4(matrix, output, out);
    default: return unpack_floats(matrix, output, out);
  }
}

}  // namespace pellucid
