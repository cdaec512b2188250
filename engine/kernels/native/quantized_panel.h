// How a quantised panel lies in memory, and single integers and scales of it; Format in kernel_table.h says what they mean.
#pragma once
#include "half_float.h"
#include "kernel_table.h"

namespace pellucid {
namespace {

constexpr int kGroupBlockBytes = kRowGroup * kBlock;  // a block of a group of rows
constexpr int kSuperBlock = 8;                        // blocks that share the scale of their scales
constexpr int kHeaderBytes = 64;                      // of a block or a super-block: floats or halves for 16 outputs
constexpr int kSmallScalesBytes = 32;                 // of a block in a super-block: 2 x 16 bytes
constexpr int kSuperHeaderBytes = kHeaderBytes + kSuperBlock * kSmallScalesBytes;

constexpr bool has_super_blocks(Format f) {
  return f == Format::kUint4K || f == Format::kUint5K || f == Format::kUint6K;
}

// Bits of an integer beyond its low four, in planes of their own.
constexpr int high_bits(Format f) {
  return f == Format::kUint5 || f == Format::kUint5K ? 1 : f == Format::kUint6K ? 2 : 0;
}

// What is subtracted from an integer; 0 in the formats with an offset.
constexpr int bias_of(Format f) { return f == Format::kUint8 ? 128 : f == Format::kUint6K ? 32 : 0; }

// Scales of a block: one, or one for each half.
constexpr int num_scales(Format f) { return f == Format::kUint6K ? 2 : 1; }

constexpr int block_value_bytes(Format f) { return f == Format::kUint8 ? 512 : 256 + 64 * high_bits(f); }

constexpr int64_t panel_bytes(Format f, int64_t num_blocks) {
  if (!has_super_blocks(f)) return num_blocks * (kHeaderBytes + block_value_bytes(f));
  return num_blocks / kSuperBlock * (kSuperHeaderBytes + kSuperBlock * block_value_bytes(f));
}

// Where a block's parts begin, in bytes from its panel.
struct BlockPlace {
  int64_t header;        // kHeaderBytes, shared by a super-block
  int64_t small_scales;  // kSmallScalesBytes; of formats with super-blocks only
  int64_t values;        // block_value_bytes
};

constexpr BlockPlace block_place(Format f, int64_t block) {
  if (!has_super_blocks(f)) {
    const int64_t header = block * (kHeaderBytes + block_value_bytes(f));
    return {header, 0, header + kHeaderBytes};
  }
  const int64_t in_super = block % kSuperBlock, header = panel_bytes(f, block - in_super);
  return {header, header + kHeaderBytes + in_super * kSmallScalesBytes,
          header + kSuperHeaderBytes + in_super * block_value_bytes(f)};
}

// A block of a panel, to be read.
struct BlockView {
  const uint8_t* header;
  const uint8_t* small_scales;
  const uint8_t* values;
};

template <Format F>
inline BlockView block_of(const PackedMatrix& w, int panel, int64_t block) {
  const uint8_t* start = static_cast<const uint8_t*>(w.values) + panel * panel_bytes(F, num_blocks(w));
  const BlockPlace place = block_place(F, block);
  return {start + place.header, start + place.small_scales, start + place.values};
}

// The panel that is multiplied after one of a call's.
template <Format F>
inline const uint8_t* panel_after(const PackedMatrix& w, int panel, int last) {
  if (panel + 1 == last && w.next_panel) return static_cast<const uint8_t*>(w.next_panel);
  return block_of<F>(w, panel + 1, 0).header;
}

// Few rows wait for memory: asks for a stream of panels early, a line for each that is read. The block lies in the panel
// that ends at `end`, and `next` is read after it.
template <Format F>
inline void ask_for_block(const BlockView& block, const uint8_t* end, const uint8_t* next) {
  constexpr int kBytesAhead = 4800;
  const uint8_t* ahead = block.values + kBytesAhead;
  if (ahead >= end) ahead = next + (ahead - end);
  for (int line = 0; line < kHeaderBytes + block_value_bytes(F); line += 64) __builtin_prefetch(ahead + line);
}

// The same block of each of PANELS panels that follow each other from `next` on.
template <Format F, int PANELS>
inline void ask_for_same_block(const PackedMatrix& w, int64_t block, const uint8_t* next) {
  const BlockPlace place = block_place(F, block);
  const int64_t first = has_super_blocks(F) ? place.values : place.header, last = place.values + block_value_bytes(F);
  for (int p = 0; p < PANELS; ++p, next += panel_bytes(F, num_blocks(w))) {
    for (int64_t line = first; line < last; line += 64) __builtin_prefetch(next + line);
  }
}

// The integer of one output's input 0..31.
template <Format F>
inline int integer_of(const BlockView& block, int output, int input) {
  const int quad = input / 4, at = output * 4 + input % 4;
  if constexpr (F == Format::kUint8) return block.values[64 * quad + at];
  const int low = quad < 4 ? block.values[64 * quad + at] & 15 : block.values[64 * (quad - 4) + at] >> 4;
  const uint8_t* high = block.values + 256 + at;
  if constexpr (high_bits(F) == 1) return low | ((high[0] >> quad) & 1) << 4;
  if constexpr (high_bits(F) == 2) return low | ((high[64 * (quad / 4)] >> 2 * (quad % 4)) & 3) << 4;
  return low;
}

inline float half_at(const uint8_t* halves, int i) {
  uint16_t half;
  std::memcpy(&half, halves + 2 * i, 2);
  return half_to_float(half);
}

// The scale of a block's half 0 or 1 (the same where a block has one); products of a float16 and a byte are exact.
template <Format F>
inline float scale_of(const BlockView& block, int output, int half) {
  if constexpr (F == Format::kUint8) {
    float scale;
    std::memcpy(&scale, block.header + 4 * output, 4);
    return scale;
  }
  const float scale = half_at(block.header, output);
  if constexpr (F == Format::kUint6K) return scale * float(int8_t(block.small_scales[kPanel * half + output]));
  if constexpr (has_super_blocks(F)) return scale * float(block.small_scales[output]);
  return scale;
}

template <Format F>
inline float offset_of(const BlockView& block, int output) {
  const float offset = half_at(block.header, kPanel + output);
  if constexpr (has_super_blocks(F)) return offset * float(block.small_scales[kPanel + output]);
  return offset;
}

}  // namespace
}  // namespace pellucid
