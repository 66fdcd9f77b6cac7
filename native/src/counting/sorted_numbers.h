// Sorts numbers with their counts: in memory, or in runs on the disk if there are many.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "spill.h"
#include "words.h"

namespace elasticdl::counting {

class SortedNumbers {
 public:
  SortedNumbers(Spill& spill, size_t max_bytes)
      : spill_(spill), max_in_memory_(std::max<size_t>(max_bytes / sizeof(Word), 1024)) {}

  void add(double number, uint64_t count) {
    if (in_memory_.size() == max_in_memory_) write_run();
    in_memory_.push_back({key_of(number), count});
  }

  // Visits the numbers in ascending order.
  template <typename Visit>
  void each(Visit&& visit) {
    const auto visit_word = [&](const Word& word) { visit(number_of(word.key), word.count); };
    if (runs_.empty()) {
      std::sort(in_memory_.begin(), in_memory_.end(), [](const Word& a, const Word& b) { return a.key < b.key; });
      for (const Word& word : in_memory_) visit_word(word);
      return;
    }
    write_run();
    std::vector<Word>().swap(in_memory_);
    merge_words(spill_, runs_, visit_word);
  }

 private:
  void write_run() {
    if (in_memory_.empty()) return;
    runs_.push_back(Words::write_sorted(in_memory_.data(), in_memory_.size(), spill_));
    in_memory_.clear();
  }
  // Maps numbers to keys of the same order.
  static uint64_t key_of(double number) {
    uint64_t bits;
    number += 0.0;  // no -0
    memcpy(&bits, &number, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t{1} << 63);
  }
  static double number_of(uint64_t key) {
    const uint64_t bits = key >> 63 ? key & ~(uint64_t{1} << 63) : ~key;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
  }

  Spill& spill_;
  size_t max_in_memory_;
  std::vector<Word> in_memory_;
  std::vector<Run> runs_;
};

}  // namespace elasticdl::counting
