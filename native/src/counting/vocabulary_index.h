// Positions of values in a vocabulary.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "texts.h"

namespace elasticdl::counting {

// A table with open addresses: the upper half of a value's hash, and its position; kFree where there is none.
class VocabularyIndex {
 public:
  // The letters of all values, one after the other, and where each ends.
  VocabularyIndex(std::string letters, std::vector<int64_t> ends)
      : letters_(std::move(letters)), ends_(std::move(ends)) {
    if (ends_.size() >= kFree) throw std::invalid_argument("more than 2^32 values in a vocabulary");
    int64_t begin = 0;
    for (const int64_t end : ends_) {
      if (end < begin || end > static_cast<int64_t>(letters_.size()))
        throw std::invalid_argument("ends must not decrease, nor pass the letters");
      begin = end;
    }
    size_t size = 16;
    while (size < 2 * ends_.size()) size *= 2;
    table_.assign(size, {0, kFree});
    mask_ = size - 1;
    for (uint32_t position = 0; position < ends_.size(); ++position) {
      const uint64_t hash = hash_of(value(position));
      size_t at = hash & mask_;
      while (table_[at].position != kFree) at = (at + 1) & mask_;
      table_[at] = {static_cast<uint32_t>(hash >> 32), position};
    }
  }

  // Positions of the `count` values between `offsets`; -1 for one that is not in the vocabulary.
  void find(const char* letters, const int32_t* offsets, size_t count, int64_t* positions) const {
    uint64_t hashes[kAhead];
    for (size_t from = 0; from < count; from += kAhead) {
      const size_t to = from + kAhead < count ? from + kAhead : count;
      for (size_t at = from; at < to; ++at) {
        const uint64_t hash = hashes[at - from] = hash_of(between(letters, offsets, at));
        __builtin_prefetch(&table_[hash & mask_]);
      }
      for (size_t at = from; at < to; ++at) positions[at] = position_of(between(letters, offsets, at), hashes[at - from]);
    }
  }

 private:
  struct Entry {
    uint32_t tag, position;
  };
  static constexpr uint32_t kFree = UINT32_MAX;
  static constexpr size_t kAhead = 32;  // values whose entries are fetched at a time

  static std::string_view between(const char* letters, const int32_t* offsets, size_t at) {
    return {letters + offsets[at], static_cast<size_t>(offsets[at + 1] - offsets[at])};
  }
  std::string_view value(size_t position) const {
    const int64_t begin = position ? ends_[position - 1] : 0;
    return {letters_.data() + begin, static_cast<size_t>(ends_[position] - begin)};
  }
  int64_t position_of(std::string_view text, uint64_t hash) const {
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t at = hash & mask_; table_[at].position != kFree; at = (at + 1) & mask_)
      if (table_[at].tag == tag && value(table_[at].position) == text) return table_[at].position;
    return -1;
  }

  std::string letters_;
  std::vector<int64_t> ends_;
  std::vector<Entry> table_;
  size_t mask_ = 0;
};

}  // namespace elasticdl::counting
