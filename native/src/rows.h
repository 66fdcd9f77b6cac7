// The rows of one stripe: chunks that never move; removed rows are reused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arena.h"
#include "prefetch.h"

namespace elasticdl {

struct RowMeta {
  uint32_t generation;  // of the last change
  uint32_t used_at;     // when it was last pulled or pushed, in the caller's clock
};

class Rows {
 public:
  static constexpr uint32_t kChunkRows = 64;

  Rows(size_t row_bytes, Arena& arena) : row_bytes_(row_bytes), arena_(arena) {}

  static size_t chunk_bytes(size_t row_bytes) { return kChunkRows * (row_bytes + sizeof(RowMeta)); }

  char* at(uint32_t row) { return chunks_[row / kChunkRows] + (row % kChunkRows) * row_bytes_; }
  RowMeta& meta(uint32_t row) {
    char* metas = chunks_[row / kChunkRows] + kChunkRows * row_bytes_;
    return reinterpret_cast<RowMeta*>(metas)[row % kChunkRows];
  }

  ELASTICDL_PREFETCHES void prefetch(uint32_t row, size_t bytes, bool near) {
    const char* from = at(row);
    for (size_t offset = 0; offset < bytes; offset += 64) elasticdl::prefetch(from + offset, near);
    elasticdl::prefetch(&meta(row), near);
  }

  uint32_t add() {
    if (!free_.empty()) {
      const uint32_t row = free_.back();
      free_.pop_back();
      return row;
    }
    if (count_ == chunks_.size() * kChunkRows) chunks_.push_back(arena_.take());
    return count_++;
  }

  void remove(uint32_t row) { free_.push_back(row); }

  size_t size() const { return count_ - free_.size(); }
  size_t bytes() const { return held(chunks_.size()); }
  // The bytes of the rows after `more` were added.
  size_t bytes_with(size_t more) const {
    const size_t fresh = more > free_.size() ? more - free_.size() : 0;
    return held(std::max(chunks_.size(), (count_ + fresh + kChunkRows - 1) / kChunkRows));
  }

 private:
  size_t held(size_t chunks) const { return chunks * (arena_.chunk_bytes() + sizeof(char*)) + free_.capacity() * 4; }

  size_t row_bytes_;
  Arena& arena_;
  uint32_t count_ = 0;
  std::vector<char*> chunks_;
  std::vector<uint32_t> free_;
};

}  // namespace elasticdl
