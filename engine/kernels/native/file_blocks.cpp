#include "file_blocks.h"

#include <cstring>
#include <stdexcept>

namespace pellucid {
namespace {

uint16_t half_bits(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return bits;
}

// The float16 times -2^power, for powers up to 4: exact where it stays in range.
uint16_t times_minus_power(uint16_t half, unsigned power) {
  const unsigned exponent = (half >> 10) & 31u, sign = (half & 0x8000u) ^ 0x8000u;
  if (exponent == 0) {  // subnormal: scale the mantissa
    unsigned e = 0, mantissa = (half & 1023u) << power;
    while (mantissa >= 2048) mantissa >>= 1, ++e;  // as many steps as bits were shifted in at most: none is lost
    return uint16_t(sign | (mantissa >= 1024 ? ((e + 1) << 10) | (mantissa & 1023u) : mantissa));
  }
  if (exponent + power >= 31) throw std::invalid_argument("a block's scale is too large for float16 arithmetic");
  return uint16_t(sign | ((half & 0x7fffu) + (power << 10)));
}

// Byte i holds input i low and input i + 16 high.
void split_nibbles(const uint8_t* bytes, FileBlock& out) {
  for (int i = 0; i < 16; ++i) {
    out.integers[i] = bytes[i] & 15;
    out.integers[i + 16] = bytes[i] >> 4;
  }
}

void add_fifth_bits(const uint8_t* bits, FileBlock& out) {
  for (int i = 0; i < kBlock; ++i) out.integers[i] = uint8_t(out.integers[i] | ((bits[i / 8] >> i % 8) & 1) << 4);
}

FileBlock decode_q4_0(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block * 18;
  FileBlock out{{}, half_bits(in), times_minus_power(half_bits(in), 3), {}};
  split_nibbles(in + 2, out);
  return out;
}

FileBlock decode_q4_1(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block * 20;
  FileBlock out{{}, half_bits(in), half_bits(in + 2), {}};
  split_nibbles(in + 4, out);
  return out;
}

FileBlock decode_q5_0(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block * 22;
  FileBlock out{{}, half_bits(in), times_minus_power(half_bits(in), 4), {}};
  split_nibbles(in + 6, out);
  add_fifth_bits(in + 2, out);
  return out;
}

FileBlock decode_q5_1(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block * 24;
  FileBlock out{{}, half_bits(in), half_bits(in + 2), {}};
  split_nibbles(in + 8, out);
  add_fifth_bits(in + 4, out);
  return out;
}

FileBlock decode_q8_0(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block * 34;
  FileBlock out{{}, half_bits(in), 0, {}};
  for (int i = 0; i < kBlock; ++i) out.integers[i] = uint8_t(in[2 + i] ^ 0x80);
  return out;
}

// Scale and minimum of a block in the 12 bytes of 6-bit numbers of Q4_K and Q5_K.
void read_small_scales(const uint8_t* bytes, int block, FileBlock& out) {
  if (block < 4) {
    out.small_scales[0] = bytes[block] & 63;
    out.small_scales[1] = bytes[block + 4] & 63;
  } else {
    out.small_scales[0] = uint8_t((bytes[block + 4] & 15) | (bytes[block - 4] >> 6) << 4);
    out.small_scales[1] = uint8_t(bytes[block + 4] >> 4 | (bytes[block] >> 6) << 4);
  }
}

// The nibbles of a super-block's blocks: two blocks share 32 bytes.
void read_paired_nibbles(const uint8_t* bytes, int block, FileBlock& out) {
  for (int i = 0; i < kBlock; ++i) out.integers[i] = (bytes[block / 2 * 32 + i] >> 4 * (block % 2)) & 15;
}

FileBlock decode_q4_k(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block / 8 * 144;
  FileBlock out{{}, half_bits(in), uint16_t(half_bits(in + 2) ^ 0x8000u), {}};
  read_small_scales(in + 4, int(block % 8), out);
  read_paired_nibbles(in + 16, int(block % 8), out);
  return out;
}

FileBlock decode_q5_k(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block / 8 * 176;
  FileBlock out{{}, half_bits(in), uint16_t(half_bits(in + 2) ^ 0x8000u), {}};
  read_small_scales(in + 4, int(block % 8), out);
  read_paired_nibbles(in + 48, int(block % 8), out);
  for (int i = 0; i < kBlock; ++i) {
    out.integers[i] = uint8_t(out.integers[i] | ((in[16 + i] >> block % 8) & 1) << 4);
  }
  return out;
}

FileBlock decode_q6_k(const uint8_t* row, int64_t block) {
  const uint8_t* in = row + block / 8 * 210;
  const int in_half = int(block % 4), half = int(block % 8) / 4;  // four blocks share 64 bytes of nibbles, 32 of high bits
  const uint8_t* low = in + half * 64 + in_half % 2 * 32;
  const uint8_t* high = in + 128 + half * 32;
  const uint8_t* scales = in + 192 + block % 8 * 2;
  FileBlock out{{}, half_bits(in + 208), 0, {scales[0], scales[1]}};
  for (int i = 0; i < kBlock; ++i) {
    out.integers[i] = uint8_t(((low[i] >> in_half / 2 * 4) & 15) | ((high[i] >> 2 * in_half) & 3) << 4);
  }
  return out;
}

}  // namespace

const BlockEncoding* find_block_encoding(const std::string& name) {
  static constexpr struct {
    const char* name;
    BlockEncoding encoding;
  } kEncodings[] = {
      {"Q4_0", {Format::kUint4, 32, 18, decode_q4_0}},     {"Q4_1", {Format::kUint4, 32, 20, decode_q4_1}},
      {"Q5_0", {Format::kUint5, 32, 22, decode_q5_0}},     {"Q5_1", {Format::kUint5, 32, 24, decode_q5_1}},
      {"Q8_0", {Format::kUint8, 32, 34, decode_q8_0}},     {"Q4_K", {Format::kUint4K, 256, 144, decode_q4_k}},
      {"Q5_K", {Format::kUint5K, 256, 176, decode_q5_k}}, {"Q6_K", {Format::kUint6K, 256, 210, decode_q6_k}},
      // Blocks of the first two, to be multiplied in bfloat16.
      {"Q4_0:bfloat16", {Format::kInt4Tiles, 32, 18, decode_q4_0}},
      {"Q4_1:bfloat16", {Format::kInt4OffsetTiles, 32, 20, decode_q4_1}},
  };
  for (const auto& known : kEncodings) {
    if (name == known.name) return &known.encoding;
  }
  return nullptr;
}

}  // namespace pellucid
