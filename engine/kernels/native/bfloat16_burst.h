// Products of bfloat16 values that never leave the registers: what the instruction set can do at most.
#pragma once
#include "lanes.h"
#if defined(__AMX_INT8__)
#include "amx_tiles.h"
#endif

namespace pellucid {
namespace {

#if !defined(__AMX_INT8__)
// Fused multiply-adds in float32, which is how bfloat16 is multiplied without instructions of its own.
inline int64_t float_burst(int64_t rounds) {
  constexpr int kChains = 10;  // of four or five cycles each, two a cycle
  Register x = Register{} + 1.0f, sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 10
    for (int c = 0; c < kChains; ++c) {
#if defined(__x86_64__)
      asm volatile("" : "+x"(x), "+x"(sum[c]));
#else
      asm volatile("" : "+m"(x), "+m"(sum[c]));
#endif
      sum[c] = multiply_add(x, x, sum[c]);
    }
  }
  return rounds * kChains * (kRegisterBytes / 4 * 2);
}
#endif

#if defined(__AVX512F__) && !defined(__AMX_INT8__)
// The instruction is written out: the other kernels here are built for machines without it.
inline int64_t pair_burst(int64_t rounds) {
  constexpr int kChains = 16;
  __m512 x = _mm512_setzero_ps(), sum[kChains] = {};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(sum[c]) : "v"(x));
  }
  return rounds * kChains * (32 * 2);
}
#endif

// What multiplies bfloat16 values fastest here.
const char* bfloat16_instruction() {
#if defined(__AMX_INT8__)
  return "tdpbf16ps";
#elif defined(__AVX512F__)
  return __builtin_cpu_supports("avx512bf16") ? "vdpbf16ps" : "float32 FMA";
#elif defined(__FMA__)
  return "float32 FMA";
#else
  return "float32 multiplication and addition";
#endif
}

// Runs `rounds` rounds; returns the operations done, a multiplication and its addition being two.
int64_t bfloat16_burst(int64_t rounds) {
#if defined(__AMX_INT8__)
  const TileScope tiles(kWholeTiles);
  for (int64_t i = 0; i < rounds; ++i) {
    tile_add_half_products<0, 4, 6>();
    tile_add_half_products<1, 4, 7>();
    tile_add_half_products<2, 5, 6>();
    tile_add_half_products<3, 5, 7>();
  }
  return rounds * 4 * (16 * 16 * 32 * 2);
#elif defined(__AVX512F__)
  return __builtin_cpu_supports("avx512bf16") ? pair_burst(rounds) : float_burst(rounds);
#else
  return float_burst(rounds);
#endif
}

}  // namespace
}  // namespace pellucid
