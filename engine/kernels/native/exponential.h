// e^x of sixteen numbers side by side, and what softmax and the draw need around it.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// x in low..high; NaN stays NaN.
inline Register clamp(Register x, float low, float high) {
  const Register least = Register{} + low, most = Register{} + high;
#if defined(__AVX512F__)
  return _mm512_min_ps(most, _mm512_max_ps(least, x));  // of NaN and a number, the second operand
#else
  x = x < least ? least : x;
  return x > most ? most : x;
#endif
}

// p * 2^n, where shifted is the whole number n + kRoundingMagic; neither power nor product leaves the normal range.
inline Register times_power_of_two(Register p, Register shifted) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, shifted - kRoundingMagic);
#else
  typedef int32_t Bits __attribute__((vector_size(kRegisterBytes)));
  return p * Register((Bits(shifted) << 23) + 0x3f800000);
#endif
}

// exp_approx of a register's numbers, the same bits.
inline Register exp_of(Register x) {
  x = clamp(x, -87.0f, 88.0f);
  const Register shifted = x * 1.44269504088896341f + kRoundingMagic;
  const Register n = shifted - kRoundingMagic;
  Register r = multiply_add(n, Register{} - 0.693359375f, x);
  r = multiply_add(n, Register{} + 2.12194440e-4f, r);
  Register p = Register{} + 1.9875691500e-4f;
  p = multiply_add(p, r, Register{} + 1.3981999507e-3f);
  p = multiply_add(p, r, Register{} + 8.3334519073e-3f);
  p = multiply_add(p, r, Register{} + 4.1665795894e-2f);
  p = multiply_add(p, r, Register{} + 1.6666665459e-1f);
  p = multiply_add(p, r, Register{} + 5.0000001201e-1f);
  p = multiply_add(p * r, r, r + 1.0f);
  return times_power_of_two(p, shifted);
}

inline Lanes larger(Lanes a, Lanes b) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  return a;
}

}  // namespace
}  // namespace pellucid
