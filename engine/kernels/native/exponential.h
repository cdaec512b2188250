// e^x of sixteen numbers side by side, and what softmax and the draw need around it.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

// a > b ? a : b, and a < b ? a : b, in one instruction where there is one.
inline Register larger(Register a, Register b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline Register smaller(Register a, Register b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
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
  const Register low = Register{} - 87.0f, high = Register{} + 88.0f;
  x = smaller(high, larger(low, x));
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
  for (int i = 0; i < kParts; ++i) a.part[i] = larger(a.part[i], b.part[i]);
  return a;
}

#if defined(__AVX512F__)
// 2^x to 9e-5 of itself, a twentieth of what rounding to bfloat16 takes; 0 below -200, NaN stays NaN. A polynomial between 0
// and 1, by least largest relative error with 2^0 = 1.
inline __m512 power_of_two(__m512 x) {
  const __m512 bounded = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);
  const __m512 rest = _mm512_reduce_ps(bounded, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(7.7067069e-02f);
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(2.2764496e-01f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(6.9511679e-01f));
  p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, bounded);  // takes the whole part below
}
#endif

}  // namespace
}  // namespace pellucid
