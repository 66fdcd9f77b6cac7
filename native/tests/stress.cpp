// Threads that do everything at once to one table, for the sanitizers: `make sanitize`.
#include <atomic>
#include <cstdio>
#include <thread>

#include "../src/dedupe.h"
#include "../src/table.h"

using namespace elasticdl;

namespace {

constexpr int kThreads = 4, kRounds = 60, kBatch = 500, kColumns = 5;

void work(Table& table, int thread) {
  std::vector<int64_t> ids(kBatch);
  std::vector<float> rows(kBatch * kColumns), gradients(kBatch * kColumns, 1.0f);
  std::vector<int32_t> inverse(kBatch);
  std::vector<uint8_t> slots(kSlots, 0);
  for (uint32_t s = 0; s < kSlots; s += 7) slots[s] = 1;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kBatch; ++i) ids[i] = (i * 7919LL + round * 31 + thread) % 4000 - 1000;
    const auto distinct = unique(ids.data(), ids.size(), inverse.data());
    table.pull(ids.data(), ids.size(), rows.data(), round, true);
    table.push(distinct.data(), distinct.size(), gradients.data(), 0.1, round + 1, round);
    if (round % 10 == 9) {
      std::vector<int64_t> found;
      std::vector<float> values, state;
      table.collect(round % kStripes, slots.data(), table.turn(), found, values, state);
      if (!found.empty()) table.load(found.data(), found.size(), values.data(), state.data(), round);
      if (thread == 0) table.remove(slots.data(), 0);
      if (thread == 1) table.remove(nullptr, round / 2);
    }
    if (table.rows() > 4000) std::abort();
    (void)table.bytes();
  }
}

int run(Rule rule, bool half, uint32_t admit_after) {
  Settings settings;
  settings.name = "stress";
  settings.columns = kColumns;
  settings.initializer = {Initial::kTruncatedNormal, 0, 1, 7};
  settings.hyper.rule = rule;
  settings.hyper.beta1 = 0.9f, settings.hyper.beta2 = 0.99f, settings.hyper.epsilon = 1e-8f, settings.hyper.initial = 0.1f;
  settings.half = half;
  settings.admit_after = admit_after;
  auto budget = std::make_shared<Budget>(uint64_t{64} << 20);
  Table table(settings, budget);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, std::ref(table), thread);
  for (auto& thread : threads) thread.join();
  std::printf("rule %d, half %d, admitted after %u: %zu rows\n", static_cast<int>(rule), half, admit_after, table.rows());
  if (budget->used.load() != table.bytes()) return 1;  // every byte is counted
  return table.rows() > 0 ? 0 : 1;
}

}  // namespace

int main() {
  int failed = 0;
  for (int rule = 0; rule <= static_cast<int>(Rule::kRmsprop); ++rule)
    failed += run(static_cast<Rule>(rule), rule % 2, 1 + rule % 3);
  return failed;
}
