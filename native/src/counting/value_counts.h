// Counts the values of one column, in memory and in sorted runs on the disk.
#pragma once

#include <string_view>
#include <vector>

#include "texts.h"
#include "words.h"

namespace elasticdl::counting {

class ValueCounts {
 public:
  // Returns whether the value is new. It must not be empty.
  bool add(std::string_view value, uint64_t count) {
    return value.size() <= 8 ? words.add(word_of(value), count) : texts.add(value, hash_of(value), count);
  }
  size_t bytes() const { return words.bytes() + texts.bytes(); }

  void spill(Spill& spill) {
    if (words.size()) word_runs_.push_back(words.spill(spill));
    if (texts.size()) text_runs_.push_back(texts.spill(spill));
  }
  bool is_spilled() const { return !word_runs_.empty() || !text_runs_.empty(); }

  // Visits each value once, in any order. May be called several times.
  template <typename Visit>
  void each(Spill& spill, Visit&& visit) {
    const auto visit_word = [&](const Word& word) { visit(text_of(word.key), word.count); };
    if (!is_spilled()) {
      words.each(visit_word);
      texts.each(visit);
      return;
    }
    this->spill(spill);
    merge_words(spill, word_runs_, visit_word);
    merge_texts(spill, text_runs_, visit);
  }

  Words words;
  Texts texts;

 private:
  std::vector<Run> word_runs_, text_runs_;
};

}  // namespace elasticdl::counting
