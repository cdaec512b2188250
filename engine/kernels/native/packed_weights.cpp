#include "packed_weights.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pellucid {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  if (exponent == 0) {
    const float value = std::ldexp(float(mantissa), -24);
    return sign ? -value : value;
  }
  const uint32_t bits = exponent == 31 ? sign | 0x7f800000u | (mantissa << 13)
                                       : sign | ((exponent + 112) << 23) | (mantissa << 13);
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

float bfloat16_to_float(uint16_t value) {
  const uint32_t bits = uint32_t(value) << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

// Exact for the values used here (a float16 times -8 that stays in range).
uint16_t half_times_minus_8(uint16_t h) {
  const uint32_t exponent = (h >> 10) & 31u;
  if (exponent == 0) {  // subnormal: scale the mantissa
    const uint32_t mantissa = (h & 1023u) * 8;
    uint32_t e = 0, m = mantissa;
    while (m >= 2048) m >>= 1, ++e;  // mantissa < 8192: at most 3 steps, bits lost are zero
    const uint16_t bits = m >= 1024 ? uint16_t(((e + 1) << 10) | (m & 1023u)) : uint16_t(m);
    return uint16_t((bits | (h & 0x8000u)) ^ 0x8000u);
  }
  if (exponent + 3 >= 31) throw std::invalid_argument("a Q4_0 scale is too large for float16 arithmetic");
  return uint16_t((h + (3u << 10)) ^ 0x8000u);
}

size_t block_bytes(Format format) { return format == Format::kUint4 ? kUint4BlockBytes : kUint8BlockBytes; }

}  // namespace

void FreeMemory::operator()(uint8_t* p) const {
#if defined(__linux__)
  if (mapped_bytes) {
    munmap(p, mapped_bytes);
    return;
  }
#endif
  std::free(p);
}

AlignedMemory::AlignedMemory(size_t bytes) : size_((bytes + 63) / 64 * 64) {
#if defined(__linux__)
  if (size_ >= kHugePage) {
    // A mapping's pages are zero and cost nothing until touched. Trimmed to a huge page's boundary.
    size_ = (size_ + kHugePage - 1) / kHugePage * kHugePage;
    void* mapping = mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    uint8_t* start = static_cast<uint8_t*>(mapping);
    const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (skip) munmap(start, skip);
    munmap(start + skip + size_, kHugePage - skip);
    data_ = std::unique_ptr<uint8_t, FreeMemory>(start + skip, FreeMemory{size_});
    madvise(start + skip, size_, MADV_HUGEPAGE);
    return;
  }
#endif
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, size_ ? size_ : 64)));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, size_);
}

OwnedRows::OwnedRows(int64_t num_rows, int64_t num_inputs) {
  const int64_t groups = (num_rows + kRowGroup - 1) / kRowGroup, places = groups * kRowGroup * (num_inputs / kBlock);
  values = AlignedMemory(size_t(places) * kBlock);
  scales = AlignedMemory(size_t(places) * sizeof(float));
  sums = AlignedMemory(size_t(places) * sizeof(float));
  corrections = AlignedMemory(size_t(places) * sizeof(int32_t));
  view = {reinterpret_cast<int8_t*>(values.data()), reinterpret_cast<float*>(scales.data()),
          reinterpret_cast<float*>(sums.data()), reinterpret_cast<int32_t*>(corrections.data())};
}

Format format_of(const std::string& encoding, int num_inputs) {
  if (encoding == "F32") return Format::kFloat32;
  if (encoding == "BF16") return Format::kBFloat16;
  if (encoding == "F16") return Format::kFloat16;
  if (num_inputs % kBlock) throw std::invalid_argument("rows must be a multiple of 32 inputs");
  if (encoding == "Q4_0" || encoding == "Q4_1") return Format::kUint4;
  if (encoding == "Q8_0") return Format::kUint8;
  throw std::invalid_argument("no native kernel for " + encoding);
}

void allocate_matrix(OwnedMatrix& matrix, Format format, int num_outputs, int num_inputs) {
  PackedMatrix& view = matrix.view;
  view.format = format;
  view.num_outputs = num_outputs;
  view.num_inputs = num_inputs;
  const size_t panels = size_t(num_panels(view));
  if (is_float(format)) {
    matrix.values = AlignedMemory(panels * size_t(num_inputs) * kPanel * size_t(value_bytes(format)));
  } else {
    matrix.values = AlignedMemory(panels * size_t(num_blocks(view)) * block_bytes(format));
  }
  view.values = matrix.values.data();
}

void pack_rows(OwnedMatrix& matrix, const std::string& encoding, const uint8_t* data, int first_output, int num_rows) {
  const PackedMatrix& view = matrix.view;
  const int num_inputs = view.num_inputs, blocks_a_row = num_blocks(view);
  if (format_of(encoding, num_inputs) != view.format) throw std::invalid_argument("mixed formats in one matrix");
  for (int r = 0; r < num_rows; ++r) {
    const int output = first_output + r, panel = output / kPanel, lane = output % kPanel;
    if (is_float(view.format)) {
      const size_t size = size_t(value_bytes(view.format));
      const uint8_t* row = data + size_t(r) * num_inputs * size;
      uint8_t* out = matrix.values.data() + (size_t(panel) * num_inputs * kPanel + lane) * size;
      for (int k = 0; k < num_inputs; ++k) std::memcpy(out + k * kPanel * size, row + k * size, size);
      continue;
    }
    const int file_bytes = encoding == "Q4_0" ? 18 : encoding == "Q4_1" ? 20 : 34;
    for (int b = 0; b < blocks_a_row; ++b) {
      const uint8_t* in = data + (size_t(r) * blocks_a_row + b) * file_bytes;
      uint8_t* out = matrix.values.data() + (size_t(panel) * blocks_a_row + b) * block_bytes(view.format);
      uint16_t half_scale;
      std::memcpy(&half_scale, in, 2);
      if (view.format == Format::kUint8) {
        const float scale = half_to_float(half_scale);
        std::memcpy(out + 4 * lane, &scale, 4);
        out += kHeaderBytes;
        for (int i = 0; i < kBlock; ++i) out[64 * (i / 4) + lane * 4 + i % 4] = uint8_t(int8_t(in[2 + i]) + 128);
        continue;
      }
      uint16_t offset;
      if (encoding == "Q4_1") {
        std::memcpy(&offset, in + 2, 2);
      } else {
        offset = half_times_minus_8(half_scale);
      }
      std::memcpy(out + 2 * lane, &half_scale, 2);
      std::memcpy(out + 2 * (kPanel + lane), &offset, 2);
      out += kHeaderBytes;
      const uint8_t* nibbles = in + (encoding == "Q4_1" ? 4 : 2);  // byte i: input i low, input i + 16 high
      for (int i = 0; i < 16; ++i) out[64 * (i / 4) + lane * 4 + i % 4] = nibbles[i];
    }
  }
}

void unpack_row(const PackedMatrix& matrix, int output, float* out) {
  const int panel = output / kPanel, lane = output % kPanel;
  const size_t first_value = size_t(panel) * matrix.num_inputs * kPanel + lane;
  if (matrix.format == Format::kFloat32) {
    const float* in = static_cast<const float*>(matrix.values) + first_value;
    for (int k = 0; k < matrix.num_inputs; ++k) out[k] = in[size_t(k) * kPanel];
    return;
  }
  if (is_float(matrix.format)) {
    const uint16_t* in = static_cast<const uint16_t*>(matrix.values) + first_value;
    for (int k = 0; k < matrix.num_inputs; ++k) {
      const uint16_t value = in[size_t(k) * kPanel];
      out[k] = matrix.format == Format::kFloat16 ? half_to_float(value) : bfloat16_to_float(value);
    }
    return;
  }
  const uint8_t* in = static_cast<const uint8_t*>(matrix.values);
  in += size_t(panel) * num_blocks(matrix) * block_bytes(matrix.format);
  for (int b = 0; b < num_blocks(matrix); ++b, in += block_bytes(matrix.format), out += kBlock) {
    const uint8_t* q = in + kHeaderBytes + lane * 4;
    if (matrix.format == Format::kUint8) {
      float scale;
      std::memcpy(&scale, in + 4 * lane, 4);
      for (int i = 0; i < kBlock; ++i) out[i] = scale * float(int(q[64 * (i / 4) + i % 4]) - 128);
      continue;
    }
    uint16_t halves[2];
    std::memcpy(&halves[0], in + 2 * lane, 2);
    std::memcpy(&halves[1], in + 2 * (kPanel + lane), 2);
    const float scale = half_to_float(halves[0]), offset = half_to_float(halves[1]);
    for (int i = 0; i < 16; ++i) {
      const uint8_t byte = q[64 * (i / 4) + i % 4];
      out[i] = scale * float(byte & 15) + offset;
      out[16 + i] = scale * float(byte >> 4) + offset;
    }
  }
}

}  // namespace pellucid
