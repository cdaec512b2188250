// Products of bfloat16 values, or of float32, that never leave the registers: what the instruction set can do at most.
#pragma once
#include "lanes.h"
#if defined(__AMX_INT8__)
#include "amx_tiles.h"
#endif

namespace pellucid {
namespace {

// The instruction of bfloat16_burst.
#if defined(__AMX_INT8__)
constexpr const char* kBfloat16Instruction = "tdpbf16ps";
#else
constexpr const char* kBfloat16Instruction = "vdpbf16ps";
#endif

// Runs part(rounds) as often as it takes: each returns a sum that `ones` ones a round have gone into, and sums of ones are
// exact in float32 up to 2^24. Returns whether every sum is right.
template <typename Part>
inline bool sums_are_right(int64_t rounds, int64_t ones, const Part& part) {
  const int64_t most = (int64_t(1) << 24) / ones;
  for (int64_t done = 0; done < rounds; done += most) {
    const int64_t now = rounds - done < most ? rounds - done : most;
    if (part(now) != float(now * ones)) return false;
  }
  return true;
}

// Runs `rounds` rounds of products of ones; returns the operations done, a multiplication and its addition being two, or -1
// where a sum isn't what it must be then. 0 where the processor has no such instruction.
int64_t bfloat16_burst(int64_t rounds) {
#if defined(__AMX_INT8__)
  const bool is_right = sums_are_right(rounds, 32, [](int64_t now) {
    const TileScope tiles(kWholeTiles);
    load_operands(0x3f803f80);
    for (int64_t i = 0; i < now; ++i) {
      tile_add_half_products<0, 4, 6>();
      tile_add_half_products<1, 4, 7>();
      tile_add_half_products<2, 5, 6>();
      tile_add_half_products<3, 5, 7>();
    }
    return first_sum<float>();
  });
  return is_right ? rounds * 4 * (16 * 16 * 32 * 2) : -1;
#elif defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  constexpr int kChains = 16;
  const bool is_right = sums_are_right(rounds, 2, [](int64_t now) {
    __m512 x = _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)), sum[kChains] = {};
    for (int64_t i = 0; i < now; ++i) {
      // Written out: the other kernels here are built for processors without it.
#pragma GCC unroll 16
      for (int c = 0; c < kChains; ++c) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(sum[c]) : "v"(x));
    }
    return _mm512_cvtss_f32(sum[0]);
  });
  return is_right ? rounds * kChains * (32 * 2) : -1;
#else
  return rounds * 0;
#endif
}

// The same of float32, as which bfloat16 is multiplied without instructions of its own, and on some processors faster.
#if defined(__FMA__)
constexpr const char* kFloatInstruction = "float32 FMA";
#else
constexpr const char* kFloatInstruction = "float32 multiplication and addition";
#endif

int64_t float_burst(int64_t rounds) {
  constexpr int kChains = 12;  // of four or five cycles each, two a cycle
  const bool is_right = sums_are_right(rounds, 1, [](int64_t now) {
    Register x = Register{} + 1.0f, sum[kChains] = {};
    for (int64_t i = 0; i < now; ++i) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) {
#if defined(__x86_64__)
        asm volatile("" : "+x"(x), "+x"(sum[c]));
#else
        asm volatile("" : "+m"(x), "+m"(sum[c]));
#endif
        sum[c] = multiply_add(x, x, sum[c]);
      }
    }
    return sum[0][0];
  });
  return is_right ? rounds * kChains * (kRegisterBytes / 4 * 2) : -1;
}

}  // namespace
}  // namespace pellucid
