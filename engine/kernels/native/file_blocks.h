// Blocks of a GGUF file's encodings, decoded to integers, scales and offsets without a change of value.
#pragma once
#include <cstdint>
#include <string>

#include "kernel_table.h"

namespace pellucid {

// 32 weights of a row: scale * s[0] * q + offset * s[1], where the small scales s are 1 in encodings without super-blocks
// (Q6_K: scale * s[half] * (q - 32)). scale and offset are float16, the latter zero where the encoding has none.
struct FileBlock {
  uint8_t integers[kBlock];  // Q8_0: q + 128
  uint16_t scale, offset;
  uint8_t small_scales[2];
};

typedef FileBlock (*BlockDecoder)(const uint8_t* row, int64_t block);

struct BlockEncoding {
  Format format;
  int super_block_inputs;  // a row must be a multiple of it
  int super_block_bytes;
  BlockDecoder decode;  // throws std::invalid_argument for a scale that the packed form can't hold
};

// nullptr for an encoding without blocks, or one that is not known.
const BlockEncoding* find_block_encoding(const std::string& name);

}  // namespace pellucid
