// Maps ids to 32-bit values: open addressing, linear probing, 12 bytes per entry, half to three quarters full.
#pragma once

#include <cstdint>
#include <vector>

#include "hash.h"
#include "prefetch.h"

namespace elasticdl {

class Index {
 public:
  // Values are row numbers or, with kCounting set, the number of sightings of an id without a row.
  static constexpr uint32_t kAbsent = 0xffffffffu;
  static constexpr uint32_t kCounting = 0x80000000u;

  // The entry's value for `id`, kAbsent if it is new. The pointer is valid until the next insertion.
  uint32_t* find_or_insert(int64_t id, uint64_t mixed) {
    if ((size_ + 1) * 4 > entries_.size() * 3) grow();
    size_t at = home(mixed);
    while (entries_[at].value != kAbsent) {
      if (entries_[at].id() == id) return &entries_[at].value;
      at = after(at);
    }
    entries_[at].set_id(id);
    ++size_;
    return &entries_[at].value;  // the caller sets it at once
  }

  uint32_t find(int64_t id, uint64_t mixed) const {
    if (entries_.empty()) return kAbsent;
    for (size_t at = home(mixed); entries_[at].value != kAbsent; at = after(at))
      if (entries_[at].id() == id) return entries_[at].value;
    return kAbsent;
  }

  ELASTICDL_PREFETCHES void prefetch(uint64_t mixed, bool near) const {
    if (entries_.empty()) return;
    const auto* from = reinterpret_cast<const char*>(&entries_[home(mixed)]);
    elasticdl::prefetch(from, near);
    elasticdl::prefetch(from + kProbed, near);
  }

  // Remove every id for which `is_gone(id, value)`; the others stay reachable.
  template <typename IsGone>
  void remove_if(IsGone is_gone) {
    std::vector<Entry> before;
    before.swap(entries_);
    size_t kept = 0;
    for (Entry& entry : before) {
      if (entry.value == kAbsent) continue;
      if (is_gone(entry.id(), entry.value))
        entry.value = kAbsent;
      else
        ++kept;
    }
    size_ = 0;
    rehash(before, capacity_for(kept, 0));
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Entry& entry : entries_)
      if (entry.value != kAbsent) visit(entry.id(), entry.value);
  }

  size_t size() const { return size_; }
  size_t bytes() const { return entries_.capacity() * sizeof(Entry); }
  // The bytes of the index after `more` ids were inserted.
  size_t bytes_with(size_t more) const { return capacity_for(size_ + more, entries_.size()) * sizeof(Entry); }

 private:
  struct Entry {  // 12 bytes: the id in two halves, since a 64-bit member would be padded to 16
    uint32_t low = 0, high = 0;
    uint32_t value = kAbsent;
    int64_t id() const { return static_cast<int64_t>((uint64_t{high} << 32) | low); }
    void set_id(int64_t id) {
      low = static_cast<uint32_t>(static_cast<uint64_t>(id));
      high = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
    }
  };
  static_assert(sizeof(Entry) == 12, "an entry is 12 bytes");

  static constexpr size_t kProbed = 3 * sizeof(Entry);  // most ids are within this distance, perhaps on the next line

  // The low bits have chosen slot and stripe; the high bits choose the entry, for any number of entries.
  size_t home(uint64_t mixed) const { return ((mixed >> 32) * entries_.size()) >> 32; }
  size_t after(size_t at) const { return at + 1 == entries_.size() ? 0 : at + 1; }

  // Grows by half: doubling would leave up to three entries for each id.
  static size_t capacity_for(size_t ids, size_t now) {
    size_t capacity = now < 16 ? 16 : now;
    while (ids * 4 > capacity * 3) capacity += capacity / 2;
    return capacity;
  }

  void grow() {
    std::vector<Entry> before;
    before.swap(entries_);
    const size_t ids = size_;
    size_ = 0;
    rehash(before, capacity_for(ids + 1, before.size()));
  }

  void rehash(const std::vector<Entry>& before, size_t capacity) {
    entries_ = std::vector<Entry>(capacity);
    for (const Entry& entry : before) {
      if (entry.value == kAbsent) continue;
      size_t at = home(mix64(static_cast<uint64_t>(entry.id())));
      while (entries_[at].value != kAbsent) at = after(at);
      entries_[at] = entry;
      ++size_;
    }
  }

  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace elasticdl
