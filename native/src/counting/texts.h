// Counts values of more than eight bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "pages.h"
#include "spill.h"

namespace elasticdl::counting {

inline uint64_t hash_of(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15ULL;
  uint64_t hash = text.size() * kMultiplier;
  const char* next = text.data();
  size_t left = text.size();
  for (; left >= 8; next += 8, left -= 8) {
    uint64_t word;
    memcpy(&word, next, 8);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  memcpy(&word, next, left);
  hash = (hash ^ word) * kMultiplier;
  return hash ^ (hash >> 29);
}

// An open-addressing table over values that are stored one after the other; an entry with count 0 is free.
class Texts {
 public:
  // Returns whether the value is new.
  bool add(std::string_view text, uint64_t hash, uint64_t count) {
    if ((used_ + 1) * 10 > table_.size() * 7) grow();
    for (size_t place = hash & mask();; place = (place + 1) & mask()) {
      Place& at = table_[place];
      if (at.count == 0) {
        at = {hash, count, keep(text), static_cast<uint32_t>(text.size())};
        ++used_;
        return true;
      }
      if (at.hash == hash && of(at) == text) {
        at.count += count;
        return false;
      }
    }
  }
  void prefetch(uint64_t hash) const {
    if (table_.size()) __builtin_prefetch(&table_[hash & mask()], 1);
  }

  size_t size() const { return used_; }
  size_t bytes() const { return table_.bytes() + letters_.bytes(); }

  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t place = 0; place < table_.size(); ++place)
      if (table_[place].count != 0) visit(of(table_[place]), table_[place].count);
  }

  // Writes the values, sorted, to the file and empties the table.
  Run spill(Spill& spill) {
    size_t kept = 0;
    for (size_t place = 0; place < table_.size(); ++place)
      if (table_[place].count != 0) table_[kept++] = table_[place];
    std::sort(table_.data(), table_.data() + kept,
              [this](const Place& a, const Place& b) { return of(a) < of(b); });
    RunWriter writer(spill, filled_ + kept * kHeadBytes);
    for (size_t place = 0; place < kept; ++place) {
      const Place& at = table_[place];
      writer.put(&at.count, sizeof at.count);
      writer.put(&at.bytes, sizeof at.bytes);
      writer.put(letters_.data() + at.begin, at.bytes);
    }
    clear();
    return writer.finish();
  }
  void clear() { table_ = Pages<Place>(), letters_ = Pages<char>(), used_ = 0, filled_ = 0; }

  static constexpr size_t kHeadBytes = sizeof(uint64_t) + sizeof(uint32_t);

 private:
  struct Place {
    uint64_t hash, count;
    uint32_t begin, bytes;
  };

  size_t mask() const { return table_.size() - 1; }
  std::string_view of(const Place& at) const { return {letters_.data() + at.begin, at.bytes}; }
  void grow() {
    Pages<Place> old(table_.size() ? table_.size() * 2 : 64);
    old.swap(table_);
    for (size_t from = 0; from < old.size(); ++from) {
      if (old[from].count == 0) continue;
      size_t place = old[from].hash & mask();
      while (table_[place].count != 0) place = (place + 1) & mask();
      table_[place] = old[from];
    }
  }
  uint32_t keep(std::string_view text) {
    if (filled_ + text.size() > letters_.size()) {
      Pages<char> wider(std::max(letters_.size() * 2, filled_ + text.size() + 4096));
      if (wider.size() > UINT32_MAX) throw std::runtime_error("more than 4 GB of values between two spills");
      if (filled_ > 0) memcpy(wider.data(), letters_.data(), filled_);
      letters_.swap(wider);
    }
    memcpy(letters_.data() + filled_, text.data(), text.size());
    filled_ += text.size();
    return static_cast<uint32_t>(filled_ - text.size());
  }

  Pages<Place> table_;
  Pages<char> letters_;
  size_t used_ = 0, filled_ = 0;
};

// Visits every value of all runs once, in order, with the sum of its counts.
template <typename Visit>
void merge_texts(const Spill& spill, const std::vector<Run>& runs, Visit&& visit) {
  struct Head {
    std::string text;
    uint64_t count;
    RunReader reader;
    bool next() {
      const char* found = reader.take(Texts::kHeadBytes);
      if (found == nullptr) return false;
      uint32_t bytes;
      memcpy(&count, found, sizeof count);
      memcpy(&bytes, found + sizeof count, sizeof bytes);
      text.assign(reader.take(bytes), bytes);
      return true;
    }
  };
  const auto later = [](const Head* a, const Head* b) { return a->text > b->text; };
  std::vector<Head> all;
  std::vector<Head*> heads;
  all.reserve(runs.size());
  for (const Run& run : runs) {
    all.push_back({{}, 0, RunReader(spill, run, buffer_bytes(runs.size()))});
    if (all.back().next()) heads.push_back(&all.back());
  }
  std::make_heap(heads.begin(), heads.end(), later);
  std::string text;
  uint64_t count = 0;
  while (!heads.empty()) {
    std::pop_heap(heads.begin(), heads.end(), later);
    Head& head = *heads.back();
    if (count > 0 && text != head.text) visit(std::string_view(text), count), count = 0;
    if (count == 0) text.swap(head.text);
    count += head.count;
    if (head.next()) {
      std::push_heap(heads.begin(), heads.end(), later);
    } else {
      heads.pop_back();
    }
  }
  if (count > 0) visit(std::string_view(text), count);
}

}  // namespace elasticdl::counting
