// The shapes of the tile registers: set for a stretch of code, given back at its end.
#pragma once
#include <cstdint>

namespace pellucid {
namespace {

constexpr int kTileRegisters = 8;

struct TileShape {
  uint8_t rows;
  uint8_t bytes_a_row;
};

// Tiles of the greatest size; 0-3 accumulate.
constexpr TileShape kWholeTiles[kTileRegisters] = {{16, 64}, {16, 64}, {16, 64}, {16, 64},
                                                   {16, 64}, {16, 64}, {16, 64}, {16, 64}};

// The tile registers of this thread, zeroed, in the given shapes. A thread that holds none costs the system less to
// switch.
class TileScope {
 public:
  explicit TileScope(const TileShape (&shapes)[kTileRegisters]) {
    alignas(64) uint8_t config[64] = {1};  // palette 1; then bytes a row from 16 on, rows from 48 on
    for (int i = 0; i < kTileRegisters; ++i) {
      config[16 + 2 * i] = shapes[i].bytes_a_row;
      config[48 + i] = shapes[i].rows;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~TileScope() { asm volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// The instructions, written out: GCC 12's own macros don't say what memory they read, so that stores before them get lost.

// `rows` of the tile's shape from memory, `stride` bytes apart.
template <int TILE>
inline void tile_load(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(TILE) : "memory");
}

template <int TILE>
inline void tile_store(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(TILE) : "memory");
}

template <int TILE>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(TILE));
}

// TILE += signed bytes of X times signed bytes of W, four at a time, in 32 bits.
template <int TILE, int X, int W>
inline void tile_add_products() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TILE), "i"(X), "i"(W));
}

// TILE += bfloat16 values of X times those of W, two at a time, in float32.
template <int TILE, int X, int W>
inline void tile_add_half_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TILE), "i"(X), "i"(W));
}

// For measurements: fills the operands 4-7 with a word.
inline void load_operands(int32_t word) {
  alignas(64) int32_t words[256];
  for (int32_t& each : words) each = word;
  tile_load<4>(words, 64);
  tile_load<5>(words, 64);
  tile_load<6>(words, 64);
  tile_load<7>(words, 64);
}

// The first number of accumulator 0.
template <typename T>
inline T first_sum() {
  alignas(64) T sums[256];
  tile_store<0>(sums, 64);
  return sums[0];
}

}  // namespace
}  // namespace pellucid
