// Dot products of bytes that never leave the registers: what the instruction set can do at most.
#pragma once
#include "lanes.h"
#if defined(__AMX_INT8__)
#include "amx_tiles.h"
#endif

namespace pellucid {
namespace {

// Runs `rounds` rounds of products of ones; returns the operations done, a multiplication and its addition being two, or
// -1 where a sum isn't what it must be then.
int64_t integer_burst(int64_t rounds) {
#if defined(__AMX_INT8__)
  const TileScope tiles(kWholeTiles);
  // Tiles that were never loaded hold zeros, and some processors don't multiply those.
  load_operands(0x01010101);
  for (int64_t i = 0; i < rounds; ++i) {
    tile_add_products<0, 4, 6>();
    tile_add_products<1, 4, 7>();
    tile_add_products<2, 5, 6>();
    tile_add_products<3, 5, 7>();
  }
  return first_sum<int32_t>() == int32_t(uint32_t(rounds) * 64) ? rounds * 4 * (16 * 16 * 64 * 2) : -1;
#elif defined(__AVX512VNNI__)
  constexpr int kChains = 16;
  __m512i x = _mm512_set1_epi8(1), sum[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) sum[c] = _mm512_setzero_si512();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      sum[c] = _mm512_dpbusd_epi32(sum[c], x, x);
      asm volatile("" : "+v"(sum[c]));
    }
  }
  const bool is_right = uint32_t(_mm512_cvtsi512_si32(sum[0])) == uint32_t(rounds) * 4;
  return is_right ? rounds * kChains * (64 * 2) : -1;
#elif defined(__AVX2__)
  constexpr int kChains = 8;
  __m256i x = _mm256_set1_epi8(1), sum[kChains];
#pragma GCC unroll 8
  for (int c = 0; c < kChains; ++c) sum[c] = _mm256_setzero_si256();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+x"(x));
      sum[c] = _mm256_add_epi16(sum[c], _mm256_maddubs_epi16(x, x));
      asm volatile("" : "+x"(sum[c]));
    }
  }
  const bool is_right = uint16_t(_mm256_extract_epi16(sum[0], 0)) == uint16_t(rounds * 2);
  return is_right ? rounds * kChains * (32 * 2) : -1;
#else
  typedef uint16_t Shorts __attribute__((vector_size(16)));  // which may wrap
  constexpr int kChains = 8;
  Shorts x = Shorts{} + uint16_t(1), sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+m"(x));
      sum[c] += x * x;
    }
    asm volatile("" : "+m"(sum));
  }
  return sum[0][0] == uint16_t(rounds) ? rounds * kChains * (8 * 2) : -1;
#endif
}

}  // namespace
}  // namespace pellucid
