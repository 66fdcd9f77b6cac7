// The summary of a column from the counts of its values: the same as the SQL of features/sql/queries.py.
#pragma once

#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kinds.h"
#include "sorted_numbers.h"
#include "value_counts.h"
#include "vocabulary.h"

namespace elasticdl::counting {

struct Question {
  uint64_t min_count = 2;
  size_t max_values = 100000;
  std::string separator = "|";
  uint64_t steps = 200;
  uint64_t max_fractions = 1000;  // numbers with fractions have a vocabulary up to this many distinct ones
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
  std::vector<std::pair<uint64_t, double>> quantiles;  // number of values up to a value, at each step
  std::vector<Value> values, odd;
};

class Summarizer {
 public:
  Summarizer(ValueCounts& counts, Spill& spill, const Question& question, size_t max_bytes, const std::atomic<bool>& stop)
      : counts_(counts),
        spill_(spill),
        question_(question),
        max_bytes_(max_bytes),
        stop_(stop),
        vocabulary_(question.min_count, question.max_values) {}

  Summary run() {
    each([&](std::string_view value, uint64_t count) { classify(value, count); });
    const bool all_numbers = summary_.numbers == summary_.present, all_dates = summary_.dates == summary_.present;
    if (summary_.present > 0 && (all_numbers || all_dates)) compute_moments(all_numbers);
    choose_vocabulary();
    return std::move(summary_);
  }

 private:
  // Every value that is not missing.
  template <typename Visit>
  void each(Visit&& visit) {
    counts_.each(spill_, [&](std::string_view value, uint64_t count) {
      if (stop_.load(std::memory_order_relaxed)) throw Stopped();
      if (!is_blank(value)) visit(value, count);
    });
  }

  void classify(std::string_view value, uint64_t count) {
    double number;
    summary_.present += count, ++summary_.kinds;
    if (is_number(value, number)) {
      summary_.numbers += count;
      if (number != std::floor(number)) summary_.fractions += count;
    } else if (is_date(value, number)) {
      summary_.dates += count;
    }
    const uint64_t pieces = 1 + separators(value);
    if (pieces > 1) summary_.separated += count;
    summary_.longest = std::max(summary_.longest, pieces);
    vocabulary_.add(value, count);  // in the same pass: most columns have one, and spilled values are read once
  }
  uint64_t separators(std::string_view value) const {
    const std::string& mark = question_.separator;
    uint64_t separators = 0;
    for (size_t at = 0; (at = value.find(mark, at)) != value.npos; at += mark.size()) ++separators;
    return separators;
  }

  void compute_moments(bool all_numbers) {
    SortedNumbers ordered(spill_, max_bytes_);
    long double sum = 0;
    each([&](std::string_view value, uint64_t count) {
      double number = 0;
      if (all_numbers ? is_number(value, number) : is_date(value, number)) {
        sum += static_cast<long double>(number) * count;
        ordered.add(number, count);
      }
    });
    const auto mean = sum / summary_.present;
    long double squares = 0;
    uint64_t upto = 0;
    const auto step = [&](uint64_t count) { return count * question_.steps / summary_.present; };
    ordered.each([&](double number, uint64_t count) {
      if (upto == 0) summary_.minimum = number;
      summary_.maximum = number;
      squares += (number - mean) * (number - mean) * count;
      if (upto == 0 || step(upto + count) > step(upto)) summary_.quantiles.emplace_back(upto + count, number);
      upto += count;
    });
    summary_.has_range = true;
    summary_.mean = static_cast<double>(mean);
    summary_.deviation = static_cast<double>(std::sqrt(squares / summary_.present));
  }

  void choose_vocabulary() {
    const bool all_numbers = summary_.numbers == summary_.present;
    if (summary_.present > 0 && summary_.separated * 2 >= summary_.present) {
      vocabulary_ = Vocabulary(question_.min_count, question_.max_values);
      ValueCounts pieces;
      each([&](std::string_view value, uint64_t count) { split(value, count, pieces); });
      pieces.each(spill_, [&](std::string_view piece, uint64_t count) { ++summary_.words, vocabulary_.add(piece, count); });
    } else if (all_numbers && summary_.fractions > 0 && summary_.kinds > question_.max_fractions) {
      vocabulary_ = Vocabulary(question_.min_count, question_.max_values);
    }
    summary_.frequent = vocabulary_.seen();
    summary_.values = vocabulary_.sorted();
    const bool is_odd_number = summary_.numbers * 2 >= summary_.present && !all_numbers;
    const bool is_odd_date = summary_.dates * 2 >= summary_.present && summary_.dates < summary_.present;
    if (is_odd_number || is_odd_date) summary_.odd = odd(is_odd_number, is_odd_date);
  }
  std::vector<Value> odd(bool without_numbers, bool without_dates) {
    Vocabulary examples(1, question_.examples);
    each([&](std::string_view value, uint64_t count) {
      double number;
      if ((without_numbers && !is_number(value, number)) || (without_dates && !is_date(value, number)))
        examples.add(value, count);
    });
    return examples.sorted();
  }
  void split(std::string_view value, uint64_t count, ValueCounts& pieces) {
    const std::string& mark = question_.separator;
    for (size_t at = 0;; at += mark.size()) {
      const size_t end = std::min(value.find(mark, at), value.size());
      if (end > at) pieces.add(value.substr(at, end - at), count);
      if (end == value.size()) break;
      at = end;
    }
    if (pieces.bytes() > max_bytes_) pieces.spill(spill_);
  }

  ValueCounts& counts_;
  Spill& spill_;
  const Question& question_;
  size_t max_bytes_;
  const std::atomic<bool>& stop_;
  Vocabulary vocabulary_;
  Summary summary_;
};

}  // namespace elasticdl::counting
