// Finds where the fields of CSV records begin and end. Text that is not clearly CSV is not guessed at: Irregular.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "pages.h"

namespace elasticdl::counting {

// The text is more complex than this parser supports: another reader must read it.
struct Irregular : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The bytes of a field in its block.
struct Cell {
  uint32_t begin, end;
  static constexpr uint32_t kDoubled = uint32_t{1} << 31;  // set in `end`: the field has doubled quotes
};

// The fields of some records, column by column.
struct Cells {
  Pages<Cell> cells;
  size_t stride = 0, rows = 0;
  size_t crlf = 0, lf = 0;  // lines with this end

  void prepare(size_t columns, size_t bytes) {
    // A record has at least one byte for each field: its delimiter, or the end of the line.
    const size_t max_rows = bytes / columns + 1;
    if (max_rows > stride) cells = Pages<Cell>(max_rows * columns), stride = max_rows;
    rows = crlf = lf = 0;
  }
  Cell* column(size_t number) { return cells.data() + number * stride; }
};

inline uint32_t marks_of_16(const char* at, char first, char second) {
#if defined(__SSE2__)
  const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m128i either =
      _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8(first)), _mm_cmpeq_epi8(block, _mm_set1_epi8(second)));
  return static_cast<uint32_t>(_mm_movemask_epi8(either));
#else
  uint32_t marks = 0;
  for (int place = 0; place < 16; ++place)
    marks |= static_cast<uint32_t>(at[place] == first || at[place] == second) << place;
  return marks;
#endif
}

class RecordParser {
 public:
  // `text` begins with a record; 16 bytes after the end of any part of it must be readable.
  RecordParser(const char* text, char delimiter, size_t columns) : text_(text), delimiter_(delimiter), columns_(columns) {}

  // Parses all records from `begin` to `end`, which have no quotes; the last byte ends a line.
  void plain(size_t begin, size_t end, Cells& into) {
    open(begin, into);
    for (size_t base = begin; base < end; base += 16) {
      uint32_t marks = marks_of_16(text_ + base, delimiter_, '\n');
      if (end - base < 16) marks &= (uint32_t{1} << (end - base)) - 1;
      for (; marks; marks &= marks - 1) {
        const size_t at = base + __builtin_ctz(marks);
        if (text_[at] == '\n') {
          end_line(at, 0);
        } else {
          end_field(at, 0, at + 1);
        }
      }
    }
  }

  // Parses all complete records from `begin` to `end`, with quotes. Returns where the first incomplete one begins.
  size_t quoted(size_t begin, size_t end, Cells& into) {
    open(begin, into);
    size_t record = begin, at = begin;
    while (at < end) {
      uint32_t doubled = 0;
      size_t close = 0;
      if (text_[at] == '"') {
        start_ = at + 1;
        for (close = at + 1;; ++close) {
          const auto* next = static_cast<const char*>(memchr(text_ + close, '"', end - close));
          if (next == nullptr || next + 1 == text_ + end) return record;
          close = next - text_;
          if (text_[close + 1] != '"') break;
          doubled = Cell::kDoubled, ++close;
        }
        at = close + 1;
      }
      while (at < end && text_[at] != delimiter_ && text_[at] != '\n') {
        if (text_[at] == '"') throw Irregular("a quote within a field");
        ++at;
      }
      if (at == end) return record;
      if (close && at != close + 1 && !(at == close + 2 && text_[at] == '\n' && text_[close + 1] == '\r'))
        throw Irregular("letters behind a quoted field");
      if (text_[at] == '\n') {
        end_line(at, doubled, close);
        record = at + 1;
      } else {
        end_field(close ? close : at, doubled, at + 1);
      }
      ++at;
    }
    return record;
  }

 private:
  void open(size_t begin, Cells& into) {
    into_ = &into;
    start_ = begin, place_ = 0;
  }
  void end_field(size_t end, uint32_t doubled, size_t next) {
    if (place_ + 1 >= columns_) throw Irregular("more fields in a line than columns");
    put(end, doubled);
    start_ = next;
  }
  void end_line(size_t end, uint32_t doubled, size_t close = 0) {
    const bool is_crlf = end > 0 && text_[end - 1] == '\r' && end > start_;
    ++(is_crlf ? into_->crlf : into_->lf);
    const size_t stop = close ? close : end - is_crlf;
    if (place_ + 1 != columns_) throw Irregular("fewer fields in a line than columns");
    if (columns_ == 1 && !close && stop == start_) throw Irregular("an empty line");
    put(stop, doubled);
    ++into_->rows, place_ = 0, start_ = end + 1;
  }
  void put(size_t end, uint32_t doubled) {
    into_->column(place_++)[into_->rows] = {static_cast<uint32_t>(start_), static_cast<uint32_t>(end) | doubled};
  }

  const char* text_;
  char delimiter_;
  size_t columns_;
  Cells* into_ = nullptr;
  size_t start_ = 0, place_ = 0;
};

}  // namespace elasticdl::counting
