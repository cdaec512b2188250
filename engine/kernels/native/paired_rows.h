// Rows of activations rounded to bfloat16, in the pairs of inputs that a tile product takes, and the sums of their blocks.
#pragma once
#include "transpose.h"

namespace pellucid {
namespace {

constexpr int kGroupBlockPairs = kRowGroup * kBlock;  // values of a block of a group of rows
constexpr int kRowsAlone = 3;  // so many rows of a group are written pair by pair, more as lines of sixteen

// To nearest, ties to even; what isn't finite stays so.
inline __m512i round_to_bfloat16(const float* x) {
  return __m512i(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + kBlock / 2), _mm512_loadu_ps(x)));
}

// The sum of each lane's two bfloat16 values.
inline __m512 sum_pairs(__m512i pairs) {
  const __m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
  const __m512 second = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int(0xffff0000))));
  return _mm512_add_ps(first, second);
}

// What one call pairs: blocks first_block... of rows of groups that take num_paired_blocks(blocks_a_row) blocks.
struct PairingTask {
  const float* x;  // [row][stride]
  int64_t stride;
  int num_blocks, blocks_a_row, first_block;
  uint16_t* pairs;

  uint16_t* group(int row) const {
    return pairs + int64_t(row / kRowGroup) * num_paired_blocks(blocks_a_row) * kGroupBlockPairs;
  }
  // Where the sum of a block of a row lies in its group. Nobody writes the places behind the last block's, which were 0.
  int64_t sum_at(int block, int row) const {
    return int64_t(blocks_a_row + block / kBlock) * kGroupBlockPairs + (block % kBlock / 2 * kRowGroup + row % kRowGroup) * 2 +
           block % 2;
  }
};

inline void pair_row(const PairingTask& task, int row, const float* x) {
  const __m512i places = _mm512_slli_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 4);
  uint16_t* const group = task.group(row);
  for (int b = task.first_block; b < task.first_block + task.num_blocks; ++b, x += kBlock) {
    const __m512i pairs = round_to_bfloat16(x);
    _mm512_i32scatter_epi32(group + int64_t(b) * kGroupBlockPairs + row % kRowGroup * 2, places, pairs, 4);
    // Halves of lanes added to each other, as pair_rows adds its registers.
    const __m512 sums = sum_pairs(pairs);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    const __m128 one = _mm_add_ss(two, _mm_movehdup_ps(two));
    group[task.sum_at(b, row)] = uint16_t(_mm_extract_epi16(__m128i(_mm_cvtneps_pbh(one)), 0));
  }
}

// Writes a block of the mask's rows of a group, whose pairs are lines, and their sums.
inline void put_block(const PairingTask& task, uint16_t* group, int block, __mmask16 mask, __m512i (&lines)[kPanel]) {
  uint16_t* out = group + int64_t(block) * kGroupBlockPairs;
  __m512 sums[kPanel];
#pragma GCC unroll 16
  for (int p = 0; p < kPanel; ++p) {
    _mm512_mask_store_epi32(out + p * kRowGroup * 2, mask, lines[p]);
    sums[p] = sum_pairs(lines[p]);
  }
#pragma GCC unroll 4
  for (int half = kPanel / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int p = 0; p < half; ++p) sums[p] = _mm512_add_ps(sums[p], sums[p + half]);
  }
  // The sum of a row is one half of its pair, the other belonging to the block beside.
  const __m512i rounded = _mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(sums[0])));
  uint16_t* pairs = group + task.sum_at(block, 0) - block % 2;
  const __mmask32 half = __mmask32(0x55555555u << block % 2);
  const __mmask32 places = half & _mm512_movepi16_mask(_mm512_movm_epi32(mask));
  _mm512_mask_storeu_epi16(pairs, places, block % 2 ? _mm512_slli_epi32(rounded, 16) : rounded);
}

// Up to sixteen rows of one group, a block of all of them at a time.
inline void pair_rows(const PairingTask& task, int first_row, int count, const float* x) {
  const int place = first_row % kRowGroup;
  const __mmask16 mask = __mmask16(((1u << count) - 1) << place);
  for (int b = task.first_block; b < task.first_block + task.num_blocks; ++b, x += kBlock) {
    __m512 lines[kPanel];
#pragma GCC unroll 16
    for (int r = 0; r < kRowGroup; ++r) {
      const bool used = r >= place && r < place + count;
      lines[r] = used ? _mm512_castsi512_ps(round_to_bfloat16(x + (r - place) * task.stride)) : _mm512_setzero_ps();
    }
    transpose(lines);
    __m512i pairs[kPanel];
#pragma GCC unroll 16
    for (int p = 0; p < kPanel; ++p) pairs[p] = _mm512_castps_si512(lines[p]);
    put_block(task, task.group(first_row), b, mask, pairs);
  }
}

void pair_blocks(const float* x, int64_t stride, int num_rows, int num_blocks, uint16_t* pairs, int blocks_a_row,
                 int first_row, int first_block) {
  const PairingTask task{x, stride, num_blocks, blocks_a_row, first_block, pairs};
  for (int row = first_row; row < first_row + num_rows;) {
    const int rest = kRowGroup - row % kRowGroup, left = first_row + num_rows - row, count = left < rest ? left : rest;
    const float* in = x + (row - first_row) * stride;
    if (count > kRowsAlone) {
      pair_rows(task, row, count, in);
    } else {
      for (int r = 0; r < count; ++r) pair_row(task, row + r, in + r * stride);
    }
    row += count;
  }
}

}  // namespace
}  // namespace pellucid
