// Recognizes numbers, dates and blanks. The rules are exactly those of features/sql/dialects.py and of DuckDB.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace elasticdl::counting {

inline bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

inline size_t digits(std::string_view text, size_t from) {
  size_t end = from;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - from;
}

// Whether it is PLAIN or SCIENTIFIC; then sets `number`.
inline bool is_number(std::string_view text, double& number) {
  if (text.size() >= 300) return false;
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  size_t at = !text.empty() && (text[0] == '+' || text[0] == '-');
  const size_t whole = digits(text, at);
  at += whole;
  const bool has_point = at < text.size() && text[at] == '.';
  const size_t fraction = has_point ? digits(text, at + 1) : 0;
  at += has_point + fraction;
  if (whole + fraction == 0) return false;
  if (at < text.size()) {
    if ((text[at] != 'e' && text[at] != 'E') || whole > 8 || fraction > 20) return false;
    ++at;
    at += at < text.size() && (text[at] == '+' || text[at] == '-');
    const size_t exponent = digits(text, at);
    if (exponent == 0 || exponent > 3 || (exponent == 3 && text[at] != '1' && text[at] != '2')) return false;
    if (at + exponent != text.size()) return false;
  }
  if (text[0] == '+') text.remove_prefix(1);
  std::from_chars(text.data(), text.data() + text.size(), number);
  return true;
}

inline int64_t days_since_1970(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2;
  const int64_t era = year / 400, year_of_era = year % 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

// Whether it is a DATE with a valid day; then sets `seconds` since 1970, to a millionth.
inline bool is_date(std::string_view text, double& seconds) {
  const auto two = [&](size_t at) { return (text[at] - '0') * 10 + (text[at + 1] - '0'); };
  const auto is_two = [&](size_t at) { return at + 2 <= text.size() && is_digit(text[at]) && is_digit(text[at + 1]); };
  if (text.size() < 10 || (text[0] != '1' && text[0] != '2') || text[4] != '-' || text[7] != '-') return false;
  if (!is_two(0) || !is_two(2) || !is_two(5) || !is_two(8)) return false;
  const int year = two(0) * 100 + two(2), month = two(5), day = two(8);
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (month < 1 || month > 12 || day < 1) return false;
  const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  if (day > kDays[month - 1] + (month == 2 && is_leap)) return false;
  int64_t clock = 0, millionths = 0;
  size_t at = 10;
  if (at < text.size()) {
    if ((text[at] != ' ' && text[at] != 'T') || !is_two(11) || !is_two(14) || text[13] != ':') return false;
    if (two(11) > 23 || two(14) > 59) return false;
    clock = two(11) * 3600 + two(14) * 60;
    at = 16;
    if (at < text.size() && text[at] == ':') {
      if (!is_two(17) || two(17) > 59) return false;
      clock += two(17);
      at = 19;
      if (at < text.size() && text[at] == '.') {
        const size_t places = digits(text, at + 1);
        if (places == 0 || places > 9) return false;
        for (size_t place = 0; place < 6; ++place)
          millionths = millionths * 10 + (place < places ? text[at + 1 + place] - '0' : 0);
        at += 1 + places;
      }
    }
    if (at < text.size() && text[at] == 'Z') ++at;
    if (at != text.size()) return false;
  }
  const int64_t whole = days_since_1970(year, month, day) * 86400 + clock;
  seconds = static_cast<double>(whole * 1000000 + millionths) / 1e6;
  return true;
}

// Reads the code point at `at` and advances `at`; -1 if it is not UTF-8.
inline int32_t code_point(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || at + more > text.size()) return -1;
  int32_t found = lead & (0x3F >> more);
  for (int left = more; left > 0; --left) {
    const auto next = static_cast<uint8_t>(text[at++]);
    if ((next & 0xC0) != 0x80) return -1;
    found = found << 6 | (next & 0x3F);
  }
  constexpr int32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = found >= 0xD800 && found <= 0xDFFF;
  return found < kLeast[more] || found > 0x10FFFF || is_surrogate ? -1 : found;
}

inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (code_point(text, at) < 0) return false;
  return true;
}

// Whether it has only spaces (Unicode category Zs): a missing value.
inline bool is_blank(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int32_t point = code_point(text, at);
    const bool is_space = point == ' ' || point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
                          point == 0x202F || point == 0x205F || point == 0x3000;
    if (!is_space) return false;
  }
  return true;
}

}  // namespace elasticdl::counting
