// Keys and values in the precision of the cache: read sixteen at a time, and written a token at a time.
#pragma once
#include "kv_layout.h"
#include "lanes.h"

namespace pellucid {
namespace {

// Sixteen neighbouring values as floats, exactly; those in 8 bits without their scale.
template <KvFormat F>
inline Lanes load_values(const uint8_t* p) {
  if constexpr (F == KvFormat::kFloat32) return load(reinterpret_cast<const float*>(p));
  if constexpr (F == KvFormat::kBFloat16) return load_weights<Format::kBFloat16>(p, 0);
  if constexpr (F == KvFormat::kFloat16) return load_weights<Format::kFloat16>(p, 0);
#if defined(__AVX512F__)
  return {{_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))}};
#else
  float lanes[kPanel];
  for (int i = 0; i < kPanel; ++i) lanes[i] = float(int8_t(p[i]));
  return load(lanes);
#endif
}

template <KvFormat F>
inline float load_value(const uint8_t* p, int64_t index) {
  if constexpr (F == KvFormat::kInt8) return float(int8_t(p[index]));
  if constexpr (F == KvFormat::kFloat32) {
    float value;
    std::memcpy(&value, p + 4 * index, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, p + 2 * index, 2);
  if constexpr (F == KvFormat::kFloat16) return half_to_float(half);
  const uint32_t bits = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Nearest bfloat16, ties to even; NaN stays NaN.
inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return uint16_t(x == x ? rounded : 0x7fc0u);
}

// Nearest float16, ties to even. Finite values beyond its range become its largest; infinity and NaN stay, to be
// reported.
inline uint16_t to_float16(float x) {
  const float largest = 65504.0f;
  if (x > largest && x <= 3.4028235e38f) x = largest;
  if (x < -largest && x >= -3.4028235e38f) x = -largest;
#if defined(__F16C__)
  return uint16_t(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude == 0x7f800000u) return uint16_t(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal: the adder rounds to a multiple of 2^-24
    float shifted;
    std::memcpy(&shifted, &magnitude, 4);
    shifted += 0.5f;
    uint32_t sum;
    std::memcpy(&sum, &shifted, 4);
    return uint16_t(sign | (sum - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
#endif
}

// Rounds head_dim values to 8 bits; returns the scale, which is NaN when a value is NaN or infinite.
inline float round_to_int8(const float* x, int head_dim, int8_t* out) {
  float largest = 0.0f;
  bool is_finite = true;
  for (int d = 0; d < head_dim; ++d) {
    const float magnitude = __builtin_fabsf(x[d]);
    largest = magnitude > largest ? magnitude : largest;
    is_finite &= magnitude <= 3.4e38f;
  }
  // The reciprocal of a tiny maximum would overflow; such a token is zero to every practical purpose.
  const float inverse = is_finite && largest > 1e-30f ? 127.0f / largest : 0.0f;
  for (int d = 0; d < head_dim; ++d) out[d] = inverse > 0.0f ? int8_t(round_to_int(x[d] * inverse)) : int8_t(0);
  return is_finite ? largest / 127.0f : __builtin_nanf("");
}

template <KvFormat F>
inline void store_halves(const KvLayout& layout, uint8_t* piece, int slot, const float* key, const float* value) {
  auto to_half = [](float x) { return F == KvFormat::kBFloat16 ? to_bfloat16(x) : to_float16(x); };
  uint16_t* keys = reinterpret_cast<uint16_t*>(piece) + slot;
  uint16_t* values = reinterpret_cast<uint16_t*>(piece + layout.values_offset()) + int64_t(slot) * layout.head_dim;
  for (int d = 0; d < layout.head_dim; ++d) keys[int64_t(d) * layout.block_size] = to_half(key[d]);
  for (int d = 0; d < layout.head_dim; ++d) values[d] = to_half(value[d]);
}

#if defined(__AVX512BF16__)
inline void store_pairs(const KvLayout& layout, uint8_t* piece, int slot, const float* key, const float* value) {
  const int head_dim = layout.head_dim;
  uint32_t* keys = reinterpret_cast<uint32_t*>(piece) + slot;
  uint8_t* values = piece + layout.values_offset() + int64_t(slot / 2) * head_dim * 4;
  alignas(64) uint32_t pairs[kPanel];
  for (int d = 0; d < head_dim; d += 2 * kPanel) {
    const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(key + d + kPanel), _mm512_loadu_ps(key + d));
    _mm512_store_si512(pairs, __m512i(halves));
#pragma GCC unroll 16
    for (int pair = 0; pair < kPanel; ++pair) keys[int64_t(d / 2 + pair) * layout.block_size] = pairs[pair];
  }
  const __mmask32 own = slot % 2 ? 0xaaaaaaaa : 0x55555555;
  for (int d = 0; d < head_dim; d += kPanel) {
    const __m512i halves = _mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(_mm512_loadu_ps(value + d))));
    _mm512_mask_storeu_epi16(values + 4 * d, own, slot % 2 ? _mm512_slli_epi32(halves, 16) : halves);
  }
}
#endif

// Writes key and value [head_dim] of one token and head into `slot` of a piece.
void store_kv(const KvLayout& layout, uint8_t* piece, int slot, const float* key, const float* value) {
#if defined(__AVX512BF16__)
  if (layout.in_pairs) return store_pairs(layout, piece, slot, key, value);
#endif
  const int head_dim = layout.head_dim, block_size = layout.block_size;
  uint8_t* piece_values = piece + layout.values_offset();
  switch (layout.format) {
    case KvFormat::kFloat32: {
      float* keys = reinterpret_cast<float*>(piece) + slot;
      for (int d = 0; d < head_dim; ++d) keys[int64_t(d) * block_size] = key[d];
      std::memcpy(piece_values + int64_t(slot) * head_dim * 4, value, size_t(head_dim) * 4);
      return;
    }
    case KvFormat::kBFloat16: return store_halves<KvFormat::kBFloat16>(layout, piece, slot, key, value);
    case KvFormat::kFloat16: return store_halves<KvFormat::kFloat16>(layout, piece, slot, key, value);
    case KvFormat::kInt8: break;
  }
  float* scales = reinterpret_cast<float*>(piece + layout.scales_offset());
  int8_t rounded[kMaxHeadDim];
  scales[slot] = round_to_int8(key, head_dim, rounded);
  for (int d = 0; d < head_dim; ++d) piece[int64_t(d) * block_size + slot] = uint8_t(rounded[d]);
  int8_t* values = reinterpret_cast<int8_t*>(piece_values) + int64_t(slot) * head_dim;
  scales[block_size + slot] = round_to_int8(value, head_dim, values);
}

}  // namespace
}  // namespace pellucid
