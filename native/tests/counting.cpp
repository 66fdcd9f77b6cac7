// Threads that count, spill, merge and sum up columns, for the sanitizers: `make sanitize`. Every count is checked.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "../src/counting/counter.h"
#include "../src/counting/vocabulary_index.h"
#include "../src/farmhash.h"

using namespace elasticdl::counting;

namespace {

constexpr size_t kColumns = 6, kRows = 30000, kThreads = 4, kBlock = 150000;

std::string cell(size_t column, size_t row) {
  const uint64_t mixed = (row * 2654435761u) >> 7;
  switch (column) {
    case 0: return std::to_string(row % 2);
    case 1: return row % 5 ? std::to_string(static_cast<double>(mixed % 9000) / 8) : "";
    case 2: return "v" + std::to_string(mixed % 20000);
    case 3: return "a long value, number " + std::to_string(mixed % 7000);
    case 4: return "x" + std::to_string(row % 9) + "|piece number " + std::to_string(mixed % 3000);
    default: return row % 3 ? "2026-01-" + std::to_string(10 + row % 20) : "";
  }
}

std::string written(const std::string& value, bool quoted) {
  if (!quoted && value.find(',') == value.npos) return value;
  std::string made = "\"";
  for (char letter : value) made += letter == '"' ? "\"\"" : std::string(1, letter);
  return made + '"';
}

void expect(bool is_so, const char* what) {
  if (is_so) return;
  std::printf("failed: %s\n", what);
  std::exit(1);
}

void run(size_t memory_bytes, bool quoted) {
  std::string text;
  std::vector<std::map<std::string, uint64_t>> expected(kColumns);
  for (size_t row = 0; row < kRows; ++row)
    for (size_t column = 0; column < kColumns; ++column) {
      const std::string value = cell(column, row);
      if (!value.empty()) ++expected[column][value];
      text += written(value, quoted) + (column + 1 < kColumns ? "," : "\n");
    }
  std::vector<size_t> selected(kColumns);
  for (size_t column = 0; column < kColumns; ++column) selected[column] = column;
  Counter counter(kColumns, selected, ',', memory_bytes, kThreads, "/tmp");
  // A block is an allocation of its own, so that a step over its end is seen.
  for (size_t begin = 0; begin < text.size();) {
    const size_t size = std::min(kBlock, text.size() - begin);
    std::string block = text.substr(begin, size) + std::string(kPadding, '\0');
    const size_t next = counter.count(block.data(), 0, size, kRows);
    expect(next > 0, "a block without a record");
    begin += next;
  }
  expect(counter.rows() == kRows, "rows");
  expect((counter.spilled_bytes() > 0) == (memory_bytes < 1 << 20), "spilled only where memory is small");
  counter.finish();
  Question question;
  question.min_count = 1;
  std::vector<Summary> found(kColumns);
  std::atomic<size_t> next{0};
  run_in_threads(kThreads, [&](size_t) {
    for (size_t column; (column = next.fetch_add(1)) < kColumns;) found[column] = counter.summarize(column, question);
  });
  for (size_t column = 0; column < kColumns; ++column) {
    expect(found[column].kinds == expected[column].size(), "distinct values");
    if (column == 4 || (column == 1 && found[column].values.empty())) continue;  // pieces, many fractions
    for (const Value& value : found[column].values) expect(expected[column][value.text] == value.count, "a count");
  }
  expect(found[4].words == 9 + 3000, "pieces");
  expect(found[5].dates == found[5].present && found[1].numbers == found[1].present, "kinds");
  std::printf("memory %zu, quoted %d: %zu bytes on disk\n", memory_bytes, quoted,
              static_cast<size_t>(counter.spilled_bytes()));
}

// A vocabulary that several threads search at once; letters are an allocation of their own here, too.
void find() {
  constexpr size_t kValues = 10000;
  std::string letters;
  std::vector<int64_t> ends;
  std::vector<int32_t> offsets{0};
  for (size_t position = 0; position < kValues; ++position) {
    letters += cell(2 + position % 2, 3 * position) + std::to_string(position);
    ends.push_back(static_cast<int64_t>(letters.size()));
    offsets.push_back(static_cast<int32_t>(letters.size()));
  }
  const VocabularyIndex index(letters.substr(0, ends[kValues / 2 - 1]), {ends.begin(), ends.begin() + kValues / 2});
  run_in_threads(kThreads, [&](size_t) {
    std::vector<int64_t> positions(kValues);
    index.find(letters.data(), offsets.data(), kValues, positions.data());
    for (size_t position = 0; position < kValues; ++position)
      expect(positions[position] == (position < kValues / 2 ? static_cast<int64_t>(position) : -1), "a position");
  });
  std::printf("%zu values found or not\n", kValues);
}

// Texts of every length up to 300, each an allocation of its own, beside the same texts in one buffer.
void hash() {
  std::string letters;
  std::vector<int64_t> offsets{0};
  for (size_t size = 0; size < 300; ++size) {
    letters += std::string(size, static_cast<char>('a' + size % 26));
    offsets.push_back(static_cast<int64_t>(letters.size()));
  }
  std::vector<uint64_t> hashes(offsets.size() - 1);
  elasticdl::farmhash::fingerprints(letters.data(), offsets.data(), hashes.size(), hashes.data());
  for (size_t size = 0; size < hashes.size(); ++size) {
    const std::vector<char> text(size, static_cast<char>('a' + size % 26));
    expect(hashes[size] == elasticdl::farmhash::fingerprint(text.data(), size), "a fingerprint");
  }
  std::printf("%zu texts hashed\n", hashes.size());
}

}  // namespace

int main() {
  find();
  hash();
  for (size_t memory_bytes : {size_t{64} << 20, size_t{200} << 10})
    for (bool quoted : {false, true}) run(memory_bytes, quoted);
  return 0;
}
