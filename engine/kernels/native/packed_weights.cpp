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

Format format_of(const std::string& encoding, int num_inputs) {
  if (encoding == "F32") return Format::kFloat32;
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
  if (format == Format::kFloat32) {
    matrix.values = AlignedMemory(panels * size_t(num_inputs) * kPanel * sizeof(float));
  } else {
    const size_t blocks = panels * size_t(num_blocks(view));
    matrix.values = AlignedMemory(blocks * (format == Format::kUint4 ? 256 : 512));
    matrix.scales = AlignedMemory(blocks * kPanel * 2);
    view.scales = reinterpret_cast<const uint16_t*>(matrix.scales.data());
    if (format == Format::kUint4) {
      matrix.offsets = AlignedMemory(blocks * kPanel * 2);
      view.offsets = reinterpret_cast<const uint16_t*>(matrix.offsets.data());
    }
  }
  view.values = matrix.values.data();
}

void pack_rows(OwnedMatrix& matrix, const std::string& encoding, const uint8_t* data, int first_output, int num_rows) {
  const PackedMatrix& view = matrix.view;
  const int num_inputs = view.num_inputs, blocks_a_row = num_blocks(view);
  if (format_of(encoding, num_inputs) != view.format) throw std::invalid_argument("mixed formats in one matrix");
  uint16_t* scales = reinterpret_cast<uint16_t*>(matrix.scales.data());
  uint16_t* offsets = reinterpret_cast<uint16_t*>(matrix.offsets.data());
  for (int r = 0; r < num_rows; ++r) {
    const int output = first_output + r, panel = output / kPanel, lane = output % kPanel;
    if (view.format == Format::kFloat32) {
      const uint8_t* row = data + size_t(r) * num_inputs * 4;
      float* out = reinterpret_cast<float*>(matrix.values.data()) + size_t(panel) * num_inputs * kPanel + lane;
      for (int k = 0; k < num_inputs; ++k) std::memcpy(out + size_t(k) * kPanel, row + size_t(k) * 4, 4);
      continue;
    }
    const int block_bytes = encoding == "Q4_0" ? 18 : encoding == "Q4_1" ? 20 : 34;
    for (int b = 0; b < blocks_a_row; ++b) {
      const uint8_t* in = data + (size_t(r) * blocks_a_row + b) * block_bytes;
      const size_t block = size_t(panel) * blocks_a_row + b;
      uint16_t scale, offset;
      std::memcpy(&scale, in, 2);
      scales[block * kPanel + lane] = scale;
      if (view.format == Format::kUint8) {
        uint8_t* out = matrix.values.data() + block * 512;
        for (int i = 0; i < kBlock; ++i) out[64 * (i / 4) + lane * 4 + i % 4] = uint8_t(int8_t(in[2 + i]) + 128);
        continue;
      }
      if (encoding == "Q4_1") {
        std::memcpy(&offset, in + 2, 2);
      } else {
        offset = half_times_minus_8(scale);
      }
      offsets[block * kPanel + lane] = offset;
      const uint8_t* nibbles = in + (encoding == "Q4_1" ? 4 : 2);  // byte i: input i low, input i + 16 high
      uint8_t* out = matrix.values.data() + block * 256;
      for (int i = 0; i < 16; ++i) out[64 * (i / 4) + lane * 4 + i % 4] = nibbles[i];
    }
  }
}

void unpack_row(const PackedMatrix& matrix, int output, float* out) {
  const int panel = output / kPanel, lane = output % kPanel;
  if (matrix.format == Format::kFloat32) {
    const float* in = static_cast<const float*>(matrix.values) + size_t(panel) * matrix.num_inputs * kPanel + lane;
    for (int k = 0; k < matrix.num_inputs; ++k) out[k] = in[size_t(k) * kPanel];
    return;
  }
  for (int b = 0; b < num_blocks(matrix); ++b) {
    const size_t block = size_t(panel) * num_blocks(matrix) + b;
    const float scale = half_to_float(matrix.scales[block * kPanel + lane]);
    if (matrix.format == Format::kUint8) {
      const uint8_t* in = static_cast<const uint8_t*>(matrix.values) + block * 512;
      for (int i = 0; i < kBlock; ++i) {
        out[b * kBlock + i] = scale * float(int(in[64 * (i / 4) + lane * 4 + i % 4]) - 128);
      }
    } else {
      const float offset = half_to_float(matrix.offsets[block * kPanel + lane]);
      const uint8_t* in = static_cast<const uint8_t*>(matrix.values) + block * 256;
      for (int i = 0; i < 16; ++i) {
        const uint8_t byte = in[64 * (i / 4) + lane * 4 + i % 4];
        out[b * kBlock + i] = scale * float(byte & 15) + offset;
        out[b * kBlock + 16 + i] = scale * float(byte >> 4) + offset;
      }
    }
  }
}

}  // namespace pellucid
