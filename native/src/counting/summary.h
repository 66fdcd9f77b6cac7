// What is told of a column, from how often each of its values is there: the same as the SQL of features/sql/queries.py.
#pragma once

#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kinds.h"
#include "ordered.h"
#include "tally.h"
#include "vocabulary.h"

namespace elasticdl::counting {

struct Question {
  uint64_t min_count = 2;
  size_t max_values = 100000;
  std::string separator = "|";
  uint64_t steps = 200;
  uint64_t max_fractions = 1000;  // numbers with fractions have a vocabulary if no more are distinct
  size_t examples = 5;
};

struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped") {}
};

struct Summary {
  uint64_t present = 0, kinds = 0, numbers = 0, dates = 0, fractions = 0, separated = 0, longest = 0;
  uint64_t words = 0, frequent = 0;  // words: of sequences
  bool has_range = false;
  double minimum = 0, maximum = 0, mean = 0, deviation = 0;
  std::vector<std::pair<uint64_t, double>> quantiles;  // how many values are up to here; only where a step is reached
  std::vector<Value> values, odd;
};

class Summarizer {
 public:
  Summarizer(Tally& tally, Spill& spill, const Question& question, size_t most_bytes, const std::atomic<bool>& stop)
      : tally_(tally),
        spill_(spill),
        question_(question),
        most_bytes_(most_bytes),
        stop_(stop),
        vocabulary_(question.min_count, question.max_values) {}

  Summary run() {
    each([&](std::string_view value, uint64_t count) { look(value, count); });
    const bool all_numbers = told_.numbers == told_.present, all_dates = told_.dates == told_.present;
    if (told_.present > 0 && (all_numbers || all_dates)) order(all_numbers);
    choose();
    return std::move(told_);
  }

 private:
  // Every value that is not missing.
  template <typename Visit>
  void each(Visit&& visit) {
    tally_.each(spill_, [&](std::string_view value, uint64_t count) {
      if (stop_.load(std::memory_order_relaxed)) throw Stopped();
      if (!is_blank(value)) visit(value, count);
    });
  }

  void look(std::string_view value, uint64_t count) {
    double number;
    told_.present += count, ++told_.kinds;
    if (is_number(value, number)) {
      told_.numbers += count;
      if (number != std::floor(number)) told_.fractions += count;
    } else if (is_date(value, number)) {
      told_.dates += count;
    }
    const uint64_t pieces = 1 + separators(value);
    if (pieces > 1) told_.separated += count;
    told_.longest = std::max(told_.longest, pieces);
    vocabulary_.add(value, count);  // most columns have one: what is spilled is read once
  }
  uint64_t separators(std::string_view value) const {
    const std::string& mark = question_.separator;
    uint64_t found = 0;
    for (size_t at = 0; (at = value.find(mark, at)) != value.npos; at += mark.size()) ++found;
    return found;
  }

  void order(bool all_numbers) {
    Ordered ordered(spill_, most_bytes_);
    long double sum = 0;
    each([&](std::string_view value, uint64_t count) {
      double number = 0;
      if (all_numbers ? is_number(value, number) : is_date(value, number)) {
        sum += static_cast<long double>(number) * count;
        ordered.add(number, count);
      }
    });
    const auto mean = sum / told_.present;
    long double squares = 0;
    uint64_t upto = 0;
    const auto step = [&](uint64_t count) { return count * question_.steps / told_.present; };
    ordered.each([&](double number, uint64_t count) {
      if (upto == 0) told_.minimum = number;
      told_.maximum = number;
      squares += (number - mean) * (number - mean) * count;
      if (upto == 0 || step(upto + count) > step(upto)) told_.quantiles.emplace_back(upto + count, number);
      upto += count;
    });
    told_.has_range = true;
    told_.mean = static_cast<double>(mean);
    told_.deviation = static_cast<double>(std::sqrt(squares / told_.present));
  }

  void choose() {
    const bool all_numbers = told_.numbers == told_.present;
    if (told_.present > 0 && told_.separated * 2 >= told_.present) {
      vocabulary_ = Vocabulary(question_.min_count, question_.max_values);
      Tally pieces;
      each([&](std::string_view value, uint64_t count) { split(value, count, pieces); });
      pieces.each(spill_, [&](std::string_view piece, uint64_t count) { ++told_.words, vocabulary_.add(piece, count); });
    } else if (all_numbers && told_.fractions > 0 && told_.kinds > question_.max_fractions) {
      vocabulary_ = Vocabulary(question_.min_count, question_.max_values);
    }
    told_.frequent = vocabulary_.seen();
    told_.values = vocabulary_.sorted();
    const bool is_odd_number = told_.numbers * 2 >= told_.present && !all_numbers;
    const bool is_odd_date = told_.dates * 2 >= told_.present && told_.dates < told_.present;
    if (is_odd_number || is_odd_date) told_.odd = odd(is_odd_number, is_odd_date);
  }
  std::vector<Value> odd(bool without_numbers, bool without_dates) {
    Vocabulary found(1, question_.examples);
    each([&](std::string_view value, uint64_t count) {
      double number;
      if ((without_numbers && !is_number(value, number)) || (without_dates && !is_date(value, number)))
        found.add(value, count);
    });
    return found.sorted();
  }
  void split(std::string_view value, uint64_t count, Tally& pieces) {
    const std::string& mark = question_.separator;
    for (size_t at = 0;; at += mark.size()) {
      const size_t end = std::min(value.find(mark, at), value.size());
      if (end > at) pieces.add(value.substr(at, end - at), count);
      if (end == value.size()) break;
      at = end;
    }
    if (pieces.bytes() > most_bytes_) pieces.spill(spill_);
  }

  Tally& tally_;
  Spill& spill_;
  const Question& question_;
  size_t most_bytes_;
  const std::atomic<bool>& stop_;
  Vocabulary vocabulary_;
  Summary told_;
};

}  // namespace elasticdl::counting
