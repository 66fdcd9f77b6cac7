// Counts values of up to eight bytes. Such a value is one word: values never contain a zero byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "pages.h"
#include "spill.h"

namespace elasticdl::counting {

struct Word {
  uint64_t key, count;
};

// The value of `bytes` <= 8 at `from`, where eight bytes must be readable.
inline uint64_t word_at(const char* from, size_t bytes) {
  uint64_t word;
  memcpy(&word, from, 8);
  return bytes >= 8 ? word : word & ((uint64_t{1} << (8 * bytes)) - 1);
}
inline uint64_t word_of(std::string_view value) {
  uint64_t word = 0;
  memcpy(&word, value.data(), value.size());
  return word;
}
inline std::string_view text_of(const uint64_t& word) {
  const auto* text = reinterpret_cast<const char*>(&word);
  return {text, word == 0 ? size_t{0} : static_cast<size_t>(8 - __builtin_clzll(word) / 8)};
}

// An open-addressing table; an entry with key 0 is free.
class Words {
 public:
  // Returns whether the value is new.
  bool add(uint64_t key, uint64_t count) {
    if ((used_ + 1) * 10 > table_.size() * 7) grow();
    for (size_t place = home(key);; place = (place + 1) & mask()) {
      Word& at = table_[place];
      if (at.key == key) {
        at.count += count;
        return false;
      }
      if (at.key == 0) {
        at = {key, count};
        ++used_;
        return true;
      }
    }
  }
  void prefetch(uint64_t key) const {
    if (table_.size()) __builtin_prefetch(&table_[home(key)], 1);
  }

  size_t size() const { return used_; }
  size_t bytes() const { return table_.bytes(); }

  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t place = 0; place < table_.size(); ++place)
      if (table_[place].key != 0) visit(table_[place]);
  }

  // Writes the values, sorted, to the file and empties the table.
  Run spill(Spill& spill) {
    size_t kept = 0;
    for (size_t place = 0; place < table_.size(); ++place)
      if (table_[place].key != 0) table_[kept++] = table_[place];
    const Run run = write_sorted(table_.data(), kept, spill);
    clear();
    return run;
  }
  static Run write_sorted(Word* words, size_t count, Spill& spill) {
    std::sort(words, words + count, [](const Word& a, const Word& b) { return a.key < b.key; });
    const Run run = spill.reserve(count * sizeof(Word));
    spill.write(words, count * sizeof(Word), run.begin);
    return run;
  }
  void clear() {
    table_ = Pages<Word>();
    used_ = 0;
  }

 private:
  size_t mask() const { return table_.size() - 1; }
  size_t home(uint64_t key) const { return ((key ^ (key >> 32)) * 0x9e3779b97f4a7c15ULL) >> shift_; }
  void grow() {
    Pages<Word> old(table_.size() ? table_.size() * 2 : 256);
    old.swap(table_);
    shift_ = __builtin_clzll(table_.size()) + 1;
    insert_all(old);
  }
  void insert_all(const Pages<Word>& old) {
    for (size_t from = 0; from < old.size(); ++from) {
      if (old[from].key == 0) continue;
      size_t place = home(old[from].key);
      while (table_[place].key != 0) place = (place + 1) & mask();
      table_[place] = old[from];
    }
  }

  Pages<Word> table_;
  size_t used_ = 0;
  int shift_ = 0;
};

// Visits every key of all runs once, in order, with the sum of its counts.
template <typename Visit>
void merge_words(const Spill& spill, const std::vector<Run>& runs, Visit&& visit) {
  struct Head {
    Word word;
    RunReader* reader;
  };
  const auto later = [](const Head& a, const Head& b) { return a.word.key > b.word.key; };
  std::vector<RunReader> readers;
  std::vector<Head> heads;
  readers.reserve(runs.size());
  for (const Run& run : runs) {
    readers.emplace_back(spill, run, buffer_bytes(runs.size()));
    Head head{{}, &readers.back()};
    if (const char* found = head.reader->take(sizeof(Word))) {
      memcpy(&head.word, found, sizeof(Word));
      heads.push_back(head);
    }
  }
  std::make_heap(heads.begin(), heads.end(), later);
  Word sum{0, 0};
  while (!heads.empty()) {
    std::pop_heap(heads.begin(), heads.end(), later);
    Head& head = heads.back();
    if (sum.count > 0 && sum.key != head.word.key) visit(sum), sum.count = 0;
    sum = {head.word.key, sum.count + head.word.count};
    if (const char* found = head.reader->take(sizeof(Word))) {
      memcpy(&head.word, found, sizeof(Word));
      std::push_heap(heads.begin(), heads.end(), later);
    } else {
      heads.pop_back();
    }
  }
  if (sum.count > 0) visit(sum);
}

}  // namespace elasticdl::counting
