// A block of a panel as a tile of bfloat16 weights: sixteen outputs, 32 inputs each. For PanelOrder::kRows.
//
// Up to 5 bits a weight is looked up: the values that an output's block can have make a table in one register, whose
// indices are the integers themselves. Rounding is to nearest; ties of 4-bit weights go away from zero, others to even.
#pragma once
#include <utility>

#include "blocks_avx512.h"

namespace pellucid {
namespace {

typedef uint16_t WeightTile[kPanel][kBlock];

// Numbers of a block's outputs, one after the other: scales and offsets, in a format with two scales both and -32 times
// both.
template <Format F>
struct BlockNumbers {
  alignas(64) float of[2 * num_scales(F)][kPanel];

  explicit BlockNumbers(const BlockView& block) {
    if constexpr (num_scales(F) == 2) {
      for (int half = 0; half < 2; ++half) {
        _mm512_store_ps(of[half], scales_of<F>(block, half));
        _mm512_store_ps(of[2 + half], _mm512_mul_ps(scales_of<F>(block, half), _mm512_set1_ps(-float(bias_of(F)))));
      }
    } else {
      _mm512_store_ps(of[0], scales_of<F>(block, 0));
      if constexpr (bias_of(F) == 0) _mm512_store_ps(of[1], offsets_of<F>(block));
    }
    // Broadcasts come from memory, which is free; otherwise the compiler makes permutations of them, which aren't.
    asm volatile("" : "+m"(of));
  }
  __m512 every(int number, int output) const { return _mm512_set1_ps(of[number][output]); }
};

inline __m512i two_in_one(__m512 first, __m512 second) { return __m512i(_mm512_cvtne2ps_pbh(second, first)); }

// Values first..first+15 of an output.
template <Format F>
inline __m512 table_of(const BlockNumbers<F>& numbers, int output, float first) {
  const __m512 integers = _mm512_add_ps(_mm512_set1_ps(first), _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                                                              13, 14, 15));
  return _mm512_fmadd_ps(integers, numbers.every(0, output), numbers.every(1, output));
}

// The low four bits of an output's integers, and others above them.
template <int OUTPUT>
inline __m512i low_bits_of(const uint8_t* values) {
  const __m512i words = _mm512_load_si512(values + 64 * (OUTPUT / 4));
  return OUTPUT % 4 ? _mm512_srli_epi16(words, OUTPUT % 4 * 4) : words;
}

// The words of a plane, moved so that bit FROM comes to lie at bit 4.
template <int FROM>
inline __m512i moved_to_bit_4(const uint8_t* plane) {
  const __m512i words = _mm512_load_si512(plane);
  return FROM < 4 ? _mm512_slli_epi16(words, FROM < 4 ? 4 - FROM : 0) : _mm512_srli_epi16(words, FROM < 4 ? 0 : FROM - 4);
}

// Bits of `high` where the mask has ones, of `low` elsewhere.
inline __m512i merged(__m512i low, __m512i high, int mask) {
  return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi16(short(mask)), 0xd8);
}

template <Format F, int OUTPUT>
inline __m512i open_output(const BlockView& block, const BlockNumbers<F>& numbers) {
  if constexpr (F == Format::kUint8) {
    const __m128i* values = reinterpret_cast<const __m128i*>(block.values + kBlock * OUTPUT);
    const __m512 scale = numbers.every(0, OUTPUT);
    return two_in_one(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(values))), scale),
                      _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128(values + 1))), scale));
  } else if constexpr (F == Format::kUint6K) {
    const __m512i high = moved_to_bit_4<OUTPUT % 8 * 2>(block.values + 256 + 64 * (OUTPUT / 8));
    const __m512i words = merged(low_bits_of<OUTPUT>(block.values), high, 0x30), mask = _mm512_set1_epi32(63);
    const __m512 first = _mm512_cvtepi32_ps(_mm512_and_si512(words, mask));
    const __m512 second = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(words, 16), mask));
    return two_in_one(_mm512_fmadd_ps(first, numbers.every(0, OUTPUT), numbers.every(2, OUTPUT)),
                      _mm512_fmadd_ps(second, numbers.every(1, OUTPUT), numbers.every(3, OUTPUT)));
  } else if constexpr (high_bits(F) == 1) {
    const __m512i index = merged(low_bits_of<OUTPUT>(block.values), moved_to_bit_4<OUTPUT>(block.values + 256), 0x10);
    const __m512i table = two_in_one(table_of<F>(numbers, OUTPUT, 0.0f), table_of<F>(numbers, OUTPUT, 16.0f));
    return _mm512_permutexvar_epi16(index, table);
  } else {
    // Upper halves of the values, twice, since bit 4 of an index is its neighbour's.
    const __m512i upper = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,  //
                                           31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    const __m512i values = _mm512_castps_si512(table_of<F>(numbers, OUTPUT, 0.0f));
    const __m512i table = _mm512_permutexvar_epi16(upper, _mm512_add_epi32(values, _mm512_set1_epi32(0x8000)));
    return _mm512_permutexvar_epi16(low_bits_of<OUTPUT>(block.values), table);
  }
}

template <Format F>
inline void open_block(const BlockView& block, WeightTile& out) {
  const BlockNumbers<F> numbers(block);
  [&]<int... OUTPUT>(std::integer_sequence<int, OUTPUT...>) {
    (_mm512_store_si512(out[OUTPUT], open_output<F, OUTPUT>(block, numbers)), ...);
  }(std::make_integer_sequence<int, kPanel>{});
}

// Sixteen rows of 32 float16 values.
inline void open_halves(const uint8_t* values, WeightTile& out) {
  for (int output = 0; output < kPanel; ++output, values += 2 * kBlock) {
    _mm512_store_si512(out[output], two_in_one(halves_to_floats(values), halves_to_floats(values + kBlock)));
  }
}

}  // namespace
}  // namespace pellucid
