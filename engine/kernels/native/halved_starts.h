// What half as many products of a row's block start from: the sum of 8 y - 120 x - x y over the inputs x of its first half and
// y of its second; see matmul_halved.h.
#pragma once
#include "lanes.h"

namespace pellucid {
namespace {

#if defined(__AVX512VNNI__)

// Four partial sums, of 8 (x + y) - (y + 128) x: bytes are multiplied unsigned with signed.
inline __m128i halved_start_parts(const int8_t* block) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block));
  const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + kBlock / 2));
  const __m128i eights = _mm_set1_epi8(8);
  const __m128i eightfold = _mm_dpbusd_epi32(_mm_dpbusd_epi32(_mm_setzero_si128(), eights, x), eights, y);
  return _mm_sub_epi32(eightfold, _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_xor_si128(y, _mm_set1_epi8(-128)), x));
}

inline int32_t halved_start(const int8_t* block) {
  const __m128i four = halved_start_parts(block), two = _mm_hadd_epi32(four, four);
  return _mm_cvtsi128_si32(_mm_hadd_epi32(two, two));
}

// Of `count` blocks; block_at(i) is the i-th.
template <typename BlockAt>
inline void set_halved_starts(int count, const BlockAt& block_at, int32_t* starts) {
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    __m128i part[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) part[j] = halved_start_parts(block_at(i + j));
    const __m128i sums = _mm_hadd_epi32(_mm_hadd_epi32(part[0], part[1]), _mm_hadd_epi32(part[2], part[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(starts + i), sums);
  }
  for (; i < count; ++i) starts[i] = halved_start(block_at(i));
}

#else

inline int32_t halved_start(const int8_t* block) {
  int32_t start = 0;
  for (int i = 0; i < kBlock / 2; ++i) {
    const int32_t x = block[i], y = block[i + kBlock / 2];
    start += 8 * y - 120 * x - x * y;
  }
  return start;
}

template <typename BlockAt>
inline void set_halved_starts(int count, const BlockAt& block_at, int32_t* starts) {
  for (int i = 0; i < count; ++i) starts[i] = halved_start(block_at(i));
}

#endif

}  // namespace
}  // namespace pellucid
