// Zeroed memory for weights, the KV pool and scratch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pellucid {

struct FreeMemory {
  size_t mapped_bytes = 0;  // 0: from the heap
  void operator()(uint8_t* p) const;
};

// Zeroed memory; a large piece is aligned to huge pages and advised to use them, and takes memory only where touched.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(size_t bytes);
  uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t, FreeMemory> data_;
  size_t size_ = 0;
};

}  // namespace pellucid
