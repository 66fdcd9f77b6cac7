// Counts the values of all columns of CSV text, block by block. Each thread counts whole columns, so that no table is
// locked and one table at a time is in the cache. Memory is bounded: when the tables together are too large, the
// largest ones are written to disk.
#pragma once

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "kinds.h"
#include "records.h"
#include "summary.h"
#include "value_counts.h"
#include "threads.h"

namespace elasticdl::counting {

constexpr size_t kMostLineBytes = 2000000;  // DuckDB takes no longer ones
constexpr size_t kPadding = 64;             // bytes after a block that must be readable

class Counter {
 public:
  // Of `columns` fields in a line those at `selected` are counted.
  Counter(size_t columns, std::vector<size_t> selected, char delimiter, size_t memory_bytes, size_t threads,
          std::string directory)
      : delimiter_(delimiter),
        memory_(memory_bytes),
        parts_(threads),
        fields_(columns),
        selected_(std::move(selected)),
        spill_(std::move(directory)),
        counts_(columns) {
    std::vector<bool> seen(fields_);
    for (size_t place : selected_) {
      // Twice the same would be two threads at one table.
      if (place >= fields_ || seen[place]) throw std::invalid_argument("a selected field twice, or that no line has");
      seen[place] = true;
    }
  }

  // The records of text from `begin` on; where the first that is not whole begins. `text` has padding behind it.
  size_t count(const char* text, size_t begin, size_t end, size_t max_rows) {
    if (memchr(text + begin, 0, end - begin)) throw Irregular("a zero byte");
    size_t parts = 1, next;
    if (memchr(text + begin, '"', end - begin)) {
      parts_[0].prepare(fields_, end - begin);
      next = RecordParser(text, delimiter_, fields_).quoted(begin, end, parts_[0]);
    } else {
      const auto* last = static_cast<const char*>(memrchr(text + begin, '\n', end - begin));
      next = last ? last + 1 - text : begin;
      parts = split(text, begin, next);
    }
    if (end - next > kMostLineBytes) throw Irregular("a long line");
    limit(parts, max_rows);
    std::atomic<size_t> column{0};
    run_in_threads(parts_.size(), [&](size_t) {
      std::string scratch;
      for (size_t next; (next = column.fetch_add(1)) < selected_.size();)
        for (size_t part = 0; part < parts; ++part) count_column(text, selected_[next], parts_[part], scratch);
    });
    shrink();
    return next;
  }

  // Adds a value that is the same in `rows` rows, such as that of a partition directory.
  void add(size_t column, std::string_view value, uint64_t rows) {
    if (!value.empty() && rows > 0) counts_.at(column).add(value, rows);
  }
  size_t add_column() {
    counts_.emplace_back();
    return counts_.size() - 1;
  }

  // Call it once for each column, after all rows are counted; several threads may. It frees the table of the column.
  Summary summarize(size_t column, const Question& question) {
    if (column >= counts_.size()) throw std::invalid_argument("no such column");
    ValueCounts counts = std::move(counts_[column]);
    counts_[column] = ValueCounts();
    Summary found = Summarizer(counts, spill_, question, memory_ / 4, stop_).run();
#if defined(__GLIBC__)
    malloc_trim(0);  // otherwise each thread keeps the memory that it has freed
#endif
    return found;
  }
  void finish() { spill_.open(); }

  void stop() { stop_ = true; }
  uint64_t rows() const { return rows_; }
  uint64_t spilled_bytes() const { return spill_.bytes(); }
  bool has_crlf() const { return crlf_ > 0; }

 private:
  // Splits the text at ends of lines into one part for each thread, and parses them.
  size_t split(const char* text, size_t begin, size_t end) {
    const size_t parts = end - begin < (size_t{64} << 10) ? 1 : parts_.size();
    std::vector<size_t> bounds{begin};
    for (size_t part = 1; part < parts; ++part) {
      const size_t from = std::max(bounds.back(), begin + (end - begin) * part / parts);
      const auto* mark = from < end ? static_cast<const char*>(memchr(text + from, '\n', end - from)) : nullptr;
      bounds.push_back(mark ? mark + 1 - text : end);
    }
    bounds.push_back(end);
    run_in_threads(parts, [&](size_t part) {
      parts_[part].prepare(fields_, bounds[part + 1] - bounds[part]);
      RecordParser(text, delimiter_, fields_).plain(bounds[part], bounds[part + 1], parts_[part]);
    });
    return parts;
  }

  void limit(size_t parts, size_t max_rows) {
    for (size_t part = 0; part < parts; ++part) {
      Cells& cells = parts_[part];
      crlf_ += cells.crlf, lf_ += cells.lf;
      cells.rows = std::min(cells.rows, max_rows);
      max_rows -= cells.rows;
      rows_ += cells.rows;
    }
    if (crlf_ > 0 && lf_ > 0) throw Irregular("lines end in two ways");
  }

  void count_column(const char* text, size_t place, Cells& cells, std::string& scratch) {
    constexpr size_t kAhead = 32;
    const Cell* column = cells.column(place);
    ValueCounts& counts = counts_[place];
    uint64_t keys[kAhead];
    for (size_t first = 0; first < cells.rows; first += kAhead) {
      const size_t count = std::min(kAhead, cells.rows - first);
      for (size_t i = 0; i < count; ++i) {
        const Cell cell = column[first + i];
        const size_t bytes = cell.end - cell.begin;
        if (bytes <= 8) {
          counts.words.prefetch(keys[i] = word_at(text + cell.begin, bytes));
        } else if (!(cell.end & Cell::kDoubled)) {
          counts.texts.prefetch(keys[i] = hash_of({text + cell.begin, bytes}));
        }
      }
      for (size_t i = 0; i < count; ++i) {
        const Cell cell = column[first + i];
        std::string_view value(text + cell.begin, (cell.end & ~Cell::kDoubled) - cell.begin);
        bool is_new;
        if (cell.end & Cell::kDoubled) {
          value = single(value, scratch);
          is_new = counts.add(value, 1);
        } else if (value.empty()) {
          continue;  // missing
        } else {
          is_new = value.size() <= 8 ? counts.words.add(keys[i], 1) : counts.texts.add(value, keys[i], 1);
        }
        if (is_new) check(value);
      }
    }
  }
  static std::string_view single(std::string_view value, std::string& scratch) {
    scratch.clear();
    for (size_t at = 0; at < value.size(); ++at) {
      scratch.push_back(value[at]);
      at += value[at] == '"';
    }
    return scratch;
  }
  static void check(std::string_view value) {
    if (memchr(value.data(), '\r', value.size())) throw Irregular("a line end of one CR, or within a field");
    if (!is_utf8(value)) throw Irregular("not UTF-8");
  }

  void shrink() {
    size_t all = 0;
    for (const ValueCounts& counts : counts_) all += counts.bytes();
    if (all <= memory_) return;
    spill_.open();
    std::vector<ValueCounts*> largest;
    for (ValueCounts& counts : counts_) largest.push_back(&counts);
    std::sort(largest.begin(), largest.end(), [](ValueCounts* a, ValueCounts* b) { return a->bytes() > b->bytes(); });
    std::vector<ValueCounts*> chosen;
    for (size_t next = 0; all > memory_ / 4 && next < largest.size(); ++next) {
      all -= largest[next]->bytes();
      chosen.push_back(largest[next]);
    }
    std::atomic<size_t> turn{0};
    run_in_threads(parts_.size(), [&](size_t) {
      for (size_t next; (next = turn.fetch_add(1)) < chosen.size();) chosen[next]->spill(spill_);
    });
  }

  char delimiter_;
  size_t memory_;
  std::vector<Cells> parts_;
  size_t fields_;
  std::vector<size_t> selected_;
  Spill spill_;
  std::vector<ValueCounts> counts_;
  uint64_t rows_ = 0, crlf_ = 0, lf_ = 0;
  std::atomic<bool> stop_{false};
};

}  // namespace elasticdl::counting
