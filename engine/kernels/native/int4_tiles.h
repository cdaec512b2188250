// 4-bit weights opened into tiles of bfloat16: an output's 32 weights of a block are looked up in a table of the sixteen values
// that they can have, which is made of two: multiples of the scale's mantissa, and what its exponent and sign add to them.
#pragma once
#include "int4_panel.h"
#include "tile_sums.h"

namespace pellucid {
namespace {

// [mantissa][j]: bits of the bfloat16 nearest to j times 1.mantissa (of 8 times, for j = 0), less those of 8.
struct MultiplesTable {
  uint16_t bits[1024][8];

  constexpr MultiplesTable() : bits() {
    for (int mantissa = 0; mantissa < 1024; ++mantissa) {
      for (int j = 0; j < 8; ++j) {
        const unsigned product = unsigned(1024 + mantissa) * unsigned(j ? j : 8);  // of 2^-10
        int top = 10;
        while (product >> (top + 1)) ++top;
        const unsigned cut = unsigned(top) - 7, half = 1u << (cut - 1);
        const unsigned rounded = (product + half - 1 + (product >> cut & 1)) >> cut;  // 8 bits; 256 where it carries
        bits[mantissa][j] = uint16_t((unsigned(127 - 10 + top) << 7) + (rounded - 128) - (130u << 7));
      }
    }
  }
};

// [sign and exponent of a code][sign and magnitude of a weight, twice].
struct ExponentTable {
  uint16_t bits[64][32];

  constexpr ExponentTable() : bits() {
    for (int code = 0; code < 64; ++code) {
      for (int place = 0; place < 32; ++place) {
        const bool negative = (place % 16 >= 8) != (code >= 32);
        // A magnitude of 0 takes the place of 8 without its exponent. That leaves a subnormal number, 0 to a tile product,
        // or 2^-126 where the mantissa of 8 times the scale was rounded up to the next power.
        const unsigned sum = (unsigned(130 + kLeastScaleExponent + code % 32) << 7) + (negative ? 0x8000u : 0u);
        bits[code][place] = place % 16 == 0 ? 0 : uint16_t(sum);
      }
    }
  }
};

alignas(64) constexpr MultiplesTable kMultiples;
alignas(64) constexpr ExponentTable kExponents;

// Opens block `b` of a panel that has num_blocks; before each quarter of it, between(quarter) is called.
template <class Between>
inline void open_int4(const uint8_t* panel, int64_t num_blocks, int64_t b, WeightTile& out, Between between) {
  alignas(32) uint16_t multiples[kPanel], exponents[kPanel];  // bytes from the tables' beginnings
  const __m256i codes = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel) + b);
  _mm256_store_si256(reinterpret_cast<__m256i*>(multiples),
                     _mm256_slli_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(1023)), 4));
  _mm256_store_si256(reinterpret_cast<__m256i*>(exponents), _mm256_slli_epi16(_mm256_srli_epi16(codes, 10), 6));
  asm("" : "+m"(multiples), "+m"(exponents));  // or they are taken from the registers one by one, which takes longer
  const uint8_t* values = panel + int4_values_at(num_blocks) + b * 256;
#pragma GCC unroll 4
  for (int p = 0; p < 4; ++p) {
    between(p);
    const __m512i words = _mm512_load_si512(values + 64 * p);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int output = 4 * p + i;
      const uint8_t* row = reinterpret_cast<const uint8_t*>(kMultiples.bits) + multiples[output];
      __m512i table;
      asm("vbroadcasti32x4 %1, %0" : "=v"(table) : "m"(*reinterpret_cast<const __m128i*>(row)));
      const uint8_t* sums = reinterpret_cast<const uint8_t*>(kExponents.bits) + exponents[output];
      table = _mm512_add_epi16(table, _mm512_load_si512(sums));
      // Of an index only five bits count, and the table is there twice: the next nibble's lowest bit doesn't matter.
      const __m512i places = i ? _mm512_srli_epi16(words, unsigned(4 * i)) : words;
      _mm512_store_si512(out[output], _mm512_permutexvar_epi16(places, table));
    }
  }
}

// Opens the tile of offsets of blocks first...
inline void open_offsets(const uint8_t* panel, int64_t num_blocks, int64_t first, WeightTile& out) {
  const int64_t count = offsets_in_tile(num_blocks, first);
  const __mmask32 mask = count >= kBlock ? __mmask32(-1) : (__mmask32(1) << count) - 1;
  const uint8_t* in = panel + int4_offset_at(num_blocks, first, 0);
  for (int output = 0; output < kPanel; ++output, in += 2 * count) {
    _mm512_store_si512(out[output], _mm512_maskz_loadu_epi16(mask, in));
  }
}

}  // namespace
}  // namespace pellucid
