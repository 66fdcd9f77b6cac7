// The most frequent values, ties in the order of text. Little more than the requested number is kept in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace elasticdl::counting {

struct Value {
  uint64_t count;
  std::string text;
  bool operator<(const Value& other) const { return count != other.count ? count > other.count : text < other.text; }
};

class Vocabulary {
 public:
  Vocabulary(uint64_t min_count, size_t most) : min_count_(min_count), most_(most) {}

  void add(std::string_view text, uint64_t count) {
    if (count < min_count_) return;
    ++seen_;
    if (kept_.size() >= most_ + std::max(most_ / 4, kSlack)) cut();
    if (is_cut_ && count < kept_[most_ - 1].count) return;
    kept_.push_back({count, std::string(text)});
  }
  // The number of values that are frequent enough, kept or not.
  uint64_t seen() const { return seen_; }

  std::vector<Value> sorted() {
    std::sort(kept_.begin(), kept_.end());
    if (kept_.size() > most_) kept_.resize(most_);
    return std::move(kept_);
  }

 private:
  static constexpr size_t kSlack = 1024;

  void cut() {
    // The last remaining value is in its final position: rarer ones are not added any more.
    std::nth_element(kept_.begin(), kept_.begin() + (most_ - 1), kept_.end());
    kept_.resize(most_);
    is_cut_ = true;
  }

  uint64_t min_count_;
  size_t most_;
  uint64_t seen_ = 0;
  bool is_cut_ = false;
  std::vector<Value> kept_;
};

}  // namespace elasticdl::counting
