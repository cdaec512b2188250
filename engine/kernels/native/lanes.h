// Sixteen floats side by side in the widest registers of the instruction set, and the scalar pieces that go with them.
//
// Every fused multiply-add is written out (the build turns the compiler's own contraction off), so that a vector body
// and a scalar rest give the same bits. Included once per instruction set, hence the unnamed namespace; nothing here may
// become a shared symbol, or a baseline machine could be linked to AVX-512 code.
#pragma once
#include <cstdint>
#include <cstring>

#include "half_float.h"
#include "kernel_table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Vectors never cross a shared symbol here, so how they are passed is nobody's business.
#pragma GCC diagnostic ignored "-Wpsabi"
#if defined(__AVX512F__)
// GCC 12's own header has intrinsics that start from a deliberately undefined register.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#endif

namespace pellucid {
namespace {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
constexpr int kTileRows = 4, kTileVectors = 4;  // 16 of 32 registers accumulate
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
constexpr int kTileRows = 2, kTileVectors = 2;  // 8 of 16
#else
constexpr int kRegisterBytes = 16;
constexpr int kTileRows = 1, kTileVectors = 2;  // 8 of 16
#endif
constexpr int kParts = 64 / kRegisterBytes;

typedef float Register __attribute__((vector_size(kRegisterBytes)));

struct Lanes {
  Register part[kParts];
};

inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline Register multiply_add(Register a, Register b, Register c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

inline Lanes broadcast(float x) {
  Lanes out;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) out.part[i] = x - Register{};
  return out;
}

inline Lanes zeros() {
  Lanes out;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) out.part[i] = Register{};
  return out;
}

// Part by part, so that the compiler keeps a Lanes in registers.
inline Lanes load(const float* p) {
  Lanes out;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) std::memcpy(&out.part[i], p + i * (kPanel / kParts), sizeof(Register));
  return out;
}

inline void store(float* p, Lanes v) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) std::memcpy(p + i * (kPanel / kParts), &v.part[i], sizeof(Register));
}

inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) c.part[i] = multiply_add(a.part[i], b.part[i], c.part[i]);
  return c;
}

inline Lanes add(Lanes a, Lanes b) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) a.part[i] += b.part[i];
  return a;
}

inline Lanes subtract(Lanes a, Lanes b) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) a.part[i] -= b.part[i];
  return a;
}

inline Lanes multiply(Lanes a, Lanes b) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) a.part[i] *= b.part[i];
  return a;
}

// Sixteen weights of a panel's input, converted exactly.
template <Format F>
inline Lanes load_weights(const void* values, int64_t input) {
  if constexpr (F == Format::kFloat32) {
    return load(static_cast<const float*>(values) + input * kPanel);
  } else {
    const uint16_t* in = static_cast<const uint16_t*>(values) + input * kPanel;
#if defined(__AVX512F__)
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    if constexpr (F == Format::kFloat16) return {{_mm512_cvtph_ps(packed)}};
    return {{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(packed), 16))}};
#elif defined(__AVX2__)
    Lanes out;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 8 * i));
      if constexpr (F == Format::kFloat16) {
        out.part[i] = _mm256_cvtph_ps(packed);
      } else {
        out.part[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16));
      }
    }
    return out;
#else
    float lanes[kPanel];
    for (int i = 0; i < kPanel; ++i) {
      if constexpr (F == Format::kFloat16) {
        lanes[i] = half_to_float(in[i]);
      } else {
        const uint32_t bits = uint32_t(in[i]) << 16;
        std::memcpy(&lanes[i], &bits, 4);
      }
    }
    return load(lanes);
#endif
  }
}

constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even

// Nearest integer of |x| < 2^22.
inline int32_t round_to_int(float x) {
  const float shifted = x + kRoundingMagic;
  int32_t bits;
  std::memcpy(&bits, &shifted, 4);
  return bits - 0x4b400000;
}

// e^x for x in -87..88, clamped to it; NaN stays NaN. Cody-Waite reduction and a degree-6 polynomial (Cephes expf);
// relative error below 3e-7.
inline float exp_approx(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504088896341f + kRoundingMagic;
  const float n = shifted - kRoundingMagic;
  float r = multiply_add(n, -0.693359375f, x);
  r = multiply_add(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  p = multiply_add(p * r, r, r + 1.0f);
  uint32_t bits;
  std::memcpy(&bits, &shifted, 4);
  bits = (bits << 23) + 0x3f800000u;  // 2^n
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

}  // namespace
}  // namespace pellucid
