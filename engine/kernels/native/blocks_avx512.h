// A quantised block's integers and scales in AVX-512 registers, sixteen outputs side by side.
#pragma once
#include "lanes.h"
#include "quantized_panel.h"

namespace pellucid {
namespace {

// Inputs 4 * QUAD..4 * QUAD + 3 of the 16 outputs, unsigned bytes [16][4].
template <Format F, int QUAD>
inline __m512i integers_of(const uint8_t* values) {
  if constexpr (F == Format::kUint8) return _mm512_load_si512(values + 64 * QUAD);
  const __m512i packed = _mm512_load_si512(values + 64 * (QUAD % 4)), low = _mm512_set1_epi8(15);
  const __m512i lows = _mm512_and_si512(QUAD < 4 ? packed : _mm512_srli_epi16(packed, 4), low);
  if constexpr (high_bits(F) == 0) return lows;
  // The high bits of this quad, moved to bits 4 and 5.
  constexpr int kFrom = high_bits(F) == 1 ? QUAD : 2 * (QUAD % 4);
  const __m512i plane = _mm512_load_si512(values + 256 + (high_bits(F) == 2 ? 64 * (QUAD / 4) : 0));
  const __m512i moved = kFrom < 4 ? _mm512_slli_epi16(plane, kFrom < 4 ? 4 - kFrom : 0)
                                  : _mm512_srli_epi16(plane, kFrom < 4 ? 0 : kFrom - 4);
  return _mm512_or_si512(lows, _mm512_and_si512(moved, _mm512_set1_epi8(high_bits(F) == 1 ? 16 : 48)));
}

inline __m512 halves_to_floats(const uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

// Scales of the block's half (of the block, where it has one).
template <Format F>
inline __m512 scales_of(const BlockView& block, int half) {
  if constexpr (F == Format::kUint8) return _mm512_load_ps(block.header);
  const __m512 scales = halves_to_floats(block.header);
  if constexpr (!has_super_blocks(F)) return scales;
  const __m128i small = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.small_scales + kPanel * half));
  const __m512i wide = F == Format::kUint6K ? _mm512_cvtepi8_epi32(small) : _mm512_cvtepu8_epi32(small);
  return _mm512_mul_ps(scales, _mm512_cvtepi32_ps(wide));
}

template <Format F>
inline __m512 offsets_of(const BlockView& block) {
  const __m512 offsets = halves_to_floats(block.header + 32);
  if constexpr (!has_super_blocks(F)) return offsets;
  const __m128i small = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block.small_scales + kPanel));
  return _mm512_mul_ps(offsets, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(small)));
}

}  // namespace
}  // namespace pellucid
