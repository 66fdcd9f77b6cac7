// Memory for rows: chunks of one size from large regions that the kernel may back with huge pages.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace elasticdl {

class Arena {
 public:
  explicit Arena(size_t chunk_bytes) : chunk_bytes_((chunk_bytes + 63) / 64 * 64) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (auto [start, bytes] : regions_) munmap(start, bytes);
  }

  // Allocates a chunk, aligned to a cache line. It is freed with the arena.
  char* take() {
    std::lock_guard<std::mutex> guard(lock_);
    if (left_ < chunk_bytes_) extend();
    char* chunk = next_;
    next_ += chunk_bytes_;
    left_ -= chunk_bytes_;
    return chunk;
  }

  size_t chunk_bytes() const { return chunk_bytes_; }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  static constexpr size_t kMinRegion = size_t{64} << 10;
  static constexpr size_t kMaxRegion = size_t{64} << 20;

  // Adds an eighth of the reserved memory, so that little is wasted; pages that were not touched cost nothing.
  void extend() {
    size_t bytes = std::clamp(reserved_ / 8, std::max(kMinRegion, chunk_bytes_), std::max(kMaxRegion, chunk_bytes_));
    const bool is_huge = bytes >= kHuge;
    bytes = is_huge ? (bytes + kHuge - 1) / kHuge * kHuge : (bytes + 4095) / 4096 * 4096;
    const size_t mapped = is_huge ? bytes + kHuge : bytes;
    void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    regions_.emplace_back(start, mapped);
    next_ = static_cast<char*>(start);
    if (is_huge) {
      next_ = reinterpret_cast<char*>((reinterpret_cast<size_t>(start) + kHuge - 1) / kHuge * kHuge);
      madvise(next_, bytes, MADV_HUGEPAGE);  // only a hint: without huge pages everything is a little slower
    }
    left_ = bytes;
    reserved_ += bytes;
  }

  const size_t chunk_bytes_;
  std::mutex lock_;
  char* next_ = nullptr;
  size_t left_ = 0;
  size_t reserved_ = 0;
  std::vector<std::pair<void*, size_t>> regions_;
};

}  // namespace elasticdl
