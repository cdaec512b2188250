#include "aligned_memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pellucid {
namespace {

constexpr size_t kHugePage = size_t(2) << 20, kChunk = 8 * kHugePage;

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

void FreeMemory::operator()(uint8_t* p) const {
  if (is_slice) return;
#if defined(__linux__)
  if (mapped_bytes) {
    munmap(p, mapped_bytes);
    return;
  }
#endif
  std::free(p);
}

AlignedMemory::AlignedMemory(size_t bytes) : size_(rounded(bytes)) {
#if defined(__linux__)
  if (size_ >= kHugePage) {
    // A mapping's pages are zero and cost nothing until touched. Trimmed to a huge page's boundary.
    size_ = (size_ + kHugePage - 1) / kHugePage * kHugePage;
    void* mapping = mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    uint8_t* start = static_cast<uint8_t*>(mapping);
    const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (skip) munmap(start, skip);
    munmap(start + skip + size_, kHugePage - skip);
    data_ = std::unique_ptr<uint8_t, FreeMemory>(start + skip, FreeMemory{size_, false});
    madvise(start + skip, size_, MADV_HUGEPAGE);
    return;
  }
#endif
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, size_ ? size_ : 64)));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, size_);
}

AlignedMemory::AlignedMemory(size_t bytes, MemoryArena* arena) {
  if (!arena || bytes >= kHugePage) {
    *this = AlignedMemory(bytes);
    return;
  }
  size_ = rounded(bytes);
  data_ = std::unique_ptr<uint8_t, FreeMemory>(arena->take(size_), FreeMemory{0, true});
}

uint8_t* MemoryArena::take(size_t bytes) {
  bytes = rounded(bytes);
  if (chunks_.empty() || chunks_.back().size() - used_ < bytes) {
    chunks_.emplace_back(bytes > kChunk ? bytes : kChunk);
    used_ = 0;
  }
  uint8_t* piece = chunks_.back().data() + used_;
  used_ += bytes;
  return piece;
}

}  // namespace pellucid
