// Zeroed memory for weights, the KV pool and scratch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pellucid {

class MemoryArena;

struct FreeMemory {
  size_t mapped_bytes = 0;  // 0: from the heap
  bool is_slice = false;    // of an arena, which frees it
  void operator()(uint8_t* p) const;
};

// Zeroed memory; a large piece is aligned to huge pages and advised to use them, and takes memory only where touched.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(size_t bytes);
  // A piece too small for huge pages of its own is cut from the arena, if there is one; it must outlive the piece.
  AlignedMemory(size_t bytes, MemoryArena* arena);
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t, FreeMemory> data_;
  size_t size_ = 0;
};

// Huge pages from which pieces are cut one after another; all of them are freed together.
//
// A decoder's matrices are smaller than a huge page. On pages of 4 KiB each of them would cost the reader a walk through
// the page tables, and the hardware's prefetcher a new start, every 4 KiB.
class MemoryArena {
 public:
  uint8_t* take(size_t bytes);  // zeroed and aligned to 64 bytes

 private:
  std::vector<AlignedMemory> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace pellucid
