// Numbers in their order, with how many values are up to each: sorted in memory, or in runs where there are many.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "spill.h"
#include "words.h"

namespace elasticdl::counting {

class Ordered {
 public:
  Ordered(Spill& spill, size_t most_bytes) : spill_(spill), most_(std::max<size_t>(most_bytes / sizeof(Word), 1024)) {}

  void add(double number, uint64_t count) {
    if (kept_.size() == most_) put();
    kept_.push_back({key_of(number), count});
  }

  // From the least to the greatest.
  template <typename Visit>
  void each(Visit&& visit) {
    const auto tell = [&](const Word& word) { visit(number_of(word.key), word.count); };
    if (runs_.empty()) {
      std::sort(kept_.begin(), kept_.end(), [](const Word& a, const Word& b) { return a.key < b.key; });
      for (const Word& word : kept_) tell(word);
      return;
    }
    put();
    std::vector<Word>().swap(kept_);
    merge_words(spill_, runs_, tell);
  }

 private:
  void put() {
    if (kept_.empty()) return;
    runs_.push_back(Words::written(kept_.data(), kept_.size(), spill_));
    kept_.clear();
  }
  // A word is less than another where its number is.
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
  size_t most_;
  std::vector<Word> kept_;
  std::vector<Run> runs_;
};

}  // namespace elasticdl::counting
