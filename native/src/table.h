// An embedding table: rows by id, created on first use, updated in batches. All calls are thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "budget.h"
#include "hash.h"
#include "index.h"
#include "initializer.h"
#include "optimizer.h"
#include "narrow.h"
#include "rows.h"

namespace elasticdl {

struct MemoryLimit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Settings {
  std::string name;
  uint32_t columns = 0;
  Initializer initializer;
  Hyper hyper;
  bool half = false;             // values as bfloat16, state as float32
  uint32_t admit_after = 1;      // sightings until an id gets a row
};

class Table {
 public:
  Table(Settings settings, std::shared_ptr<Budget> budget)
      : settings_(std::move(settings)),
        budget_(std::move(budget)),
        state_floats_(settings_.hyper.state(settings_.columns)),
        value_bytes_((settings_.half ? 2 : 4) * settings_.columns + (settings_.half && settings_.columns % 2 ? 2 : 0)),
        update_(rules::update_function(settings_.hyper.rule)),
        arena_(Rows::chunk_bytes(value_bytes_ + 4 * state_floats_)) {
    for (auto& stripe : stripes_) stripe = std::make_unique<Stripe>(value_bytes_ + 4 * state_floats_, arena_);
  }

  ~Table() { budget_->change(bytes(), 0); }

  const Settings& settings() const { return settings_; }
  uint32_t state_floats() const { return state_floats_; }

  // Reads rows; creates those of new ids that are admitted. An id that is not admitted has its initial values.
  void pull(const int64_t* ids, size_t n, float* out, uint32_t now, bool create) {
    const uint32_t columns = settings_.columns;
    visit(ids, n, create ? Access::kCreate : Access::kLook, now, [&](size_t i, int64_t id, char* row, RowMeta*) {
      float* to = out + i * columns;
      if (row == nullptr)
        settings_.initializer.fill(id, to, columns);
      else if (settings_.half)
        for (uint32_t c = 0; c < columns; ++c) to[c] = widened(reinterpret_cast<uint16_t*>(row)[c]);
      else
        std::memcpy(to, row, 4 * columns);
    });
  }

  // Updates each row of `ids`, which are distinct, once. Returns how many had a row.
  size_t push(const int64_t* ids, size_t n, const float* gradients, double rate, uint64_t step, uint32_t now) {
    const uint32_t columns = settings_.columns;
    const Scale scale = Scale::at(settings_.hyper, rate, step);
    // ftrl has an l2 of its own; with the others it is part of the gradient.
    const float l2 = settings_.hyper.rule == Rule::kFtrl ? 0.0f : settings_.hyper.l2;
    std::vector<float> wide(settings_.half ? columns : 0), shrinking(l2 != 0 ? columns : 0);
    const auto apply = [&](float* values, float* state, const float* gradient) {
      if (l2 != 0) {
        for (uint32_t c = 0; c < columns; ++c) shrinking[c] = gradient[c] + l2 * values[c];
        gradient = shrinking.data();
      }
      update_(values, state, gradient, columns, settings_.hyper, scale);
    };
    size_t applied = 0;
    visit(ids, n, Access::kUpdate, now, [&](size_t i, int64_t, char* row, RowMeta* meta) {
      if (row == nullptr) return;  // not admitted yet
      float* state = reinterpret_cast<float*>(row + value_bytes_);
      const float* gradient = gradients + i * columns;
      if (settings_.half) {
        auto* values = reinterpret_cast<uint16_t*>(row);
        for (uint32_t c = 0; c < columns; ++c) wide[c] = widened(values[c]);
        apply(wide.data(), state, gradient);
        for (uint32_t c = 0; c < columns; ++c) values[c] = narrowed(wide[c]);
      } else {
        apply(reinterpret_cast<float*>(row), state, gradient);
      }
      changed(*meta);
      ++applied;
    });
    return applied;
  }

  // Stores rows with values and state from another ps or from a checkpoint.
  void load(const int64_t* ids, size_t n, const float* values, const float* state, uint32_t now) {
    const uint32_t columns = settings_.columns;
    visit(ids, n, Access::kPut, now, [&](size_t i, int64_t, char* row, RowMeta* meta) {
      if (row == nullptr) return;  // kPut always creates one
      const float* from = values + i * columns;
      if (settings_.half)
        for (uint32_t c = 0; c < columns; ++c) reinterpret_cast<uint16_t*>(row)[c] = narrowed(from[c]);
      else
        std::memcpy(row, from, 4 * columns);
      if (state_floats_) std::memcpy(row + value_bytes_, state + i * state_floats_, 4 * state_floats_);
      changed(*meta);
    });
  }

  // Creates rows with these values for ids that have none; sets `is_new` for these.
  void put(const int64_t* ids, size_t n, const float* values, uint32_t now, uint8_t* is_new) {
    const uint32_t columns = settings_.columns;
    visit(ids, n, Access::kMake, now, [&](size_t i, int64_t, char* row, RowMeta*) {
      is_new[i] = row != nullptr;
      if (row == nullptr) return;  // the id has a row
      const float* value = values + i * columns;
      if (settings_.half)
        for (uint32_t c = 0; c < columns; ++c) reinterpret_cast<uint16_t*>(row)[c] = narrowed(value[c]);
      else
        std::memcpy(row, value, 4 * columns);
    });
  }

  // Sets `has` for each id that has a row.
  void find(const int64_t* ids, size_t n, uint8_t* has) {
    for (size_t i = 0; i < n; ++i) {
      const uint64_t mixed = mix64(static_cast<uint64_t>(ids[i]));
      Stripe& stripe = *stripes_[stripe_of(slot_of(mixed))];
      std::lock_guard<std::mutex> guard(stripe.lock);
      has[i] = !(stripe.index.find(ids[i], mixed) & Index::kCounting);
    }
  }

  // Reads the rows of a stripe that are in `wanted` slots and changed in generation `since` or later.
  void collect(uint32_t stripe, const uint8_t* wanted, uint32_t since, std::vector<int64_t>& ids,
               std::vector<float>& values, std::vector<float>& state) {
    Stripe& from = *stripes_[stripe];
    std::lock_guard<std::mutex> guard(from.lock);
    from.index.for_each([&](int64_t id, uint32_t row) {
      if (row & Index::kCounting || !wanted[slot_of(mix64(static_cast<uint64_t>(id)))]) return;
      if (from.rows.meta(row).generation < since) return;
      const char* at = from.rows.at(row);
      ids.push_back(id);
      if (settings_.half) {
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(at);
        for (uint32_t c = 0; c < settings_.columns; ++c) values.push_back(widened(halves[c]));
      } else {
        const float* floats = reinterpret_cast<const float*>(at);
        values.insert(values.end(), floats, floats + settings_.columns);
      }
      const float* states = reinterpret_cast<const float*>(at + value_bytes_);
      state.insert(state.end(), states, states + state_floats_);
    });
  }

  // Removes rows in `gone` slots and rows not used since `before`. Returns their number.
  size_t remove(const uint8_t* gone, uint32_t before) {
    size_t removed = 0;
    for (uint32_t number = 0; number < kStripes; ++number) {
      if (gone != nullptr && !before && !has_slot(gone, number)) continue;
      auto& stripe = stripes_[number];
      std::lock_guard<std::mutex> guard(stripe->lock);
      const size_t before_bytes = stripe->bytes();
      stripe->index.remove_if([&](int64_t id, uint32_t row) {
        const bool counts = row & Index::kCounting;
        const bool is_gone = gone != nullptr && gone[slot_of(mix64(static_cast<uint64_t>(id)))];
        if (!is_gone && (counts || stripe->rows.meta(row).used_at >= before)) return false;
        if (!counts) stripe->rows.remove(row), ++removed;
        return true;
      });
      budget_->change(before_bytes, stripe->bytes());
    }
    return removed;
  }

  // Changes from here on belong to the next generation; returns its number.
  uint32_t turn() { return generation_.fetch_add(1) + 1; }
  uint32_t generation() const { return generation_.load(); }

  // Nanoseconds that all threads together have waited for another one's batch.
  uint64_t waited() const { return waited_.load(); }

  size_t rows() const { return sum([](const Stripe& s) { return s.rows.size(); }); }
  size_t bytes() const { return sum([](const Stripe& s) { return s.bytes(); }); }
  size_t counting() const { return sum([](const Stripe& s) { return s.index.size() - s.rows.size(); }); }

 private:
  // Whether one of the `wanted` slots is in this stripe.
  static bool has_slot(const uint8_t* wanted, uint32_t stripe) {
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      if (wanted[slot] && stripe_of(slot) == stripe) return true;
    return false;
  }

  // kLook creates no rows; kCreate counts a sighting and creates rows of admitted ids; kUpdate creates rows if every id
  // is admitted at once; kPut creates a row for any count; kMake too, but does not touch existing rows.
  enum class Access { kLook, kCreate, kUpdate, kPut, kMake };

  struct Stripe {
    Stripe(size_t row_bytes, Arena& arena) : rows(row_bytes, arena) {}
    size_t bytes() const { return rows.bytes() + index.bytes(); }
    size_t growth(size_t more) const { return rows.bytes_with(more) + index.bytes_with(more) - bytes(); }

    mutable std::mutex lock;
    Index index;
    Rows rows;
  };

  static constexpr size_t kBlock = 24;

  template <typename Touch>
  void visit(const int64_t* ids, size_t n, Access access, uint32_t now, Touch touch) {
    // Group the ids by stripe, in their order: one pass to count, one to place.
    thread_local std::vector<uint64_t> mixed_buffer;
    thread_local std::vector<uint32_t> order_buffer;
    mixed_buffer.resize(n);
    order_buffer.resize(n);
    uint64_t* mixed = mixed_buffer.data();
    uint32_t* order = order_buffer.data();
    std::array<uint32_t, kStripes + 1> begin{};
    for (size_t i = 0; i < n; ++i) {
      mixed[i] = mix64(static_cast<uint64_t>(ids[i]));
      ++begin[stripe_of(slot_of(mixed[i])) + 1];
    }
    for (uint32_t s = 0; s < kStripes; ++s) begin[s + 1] += begin[s];
    std::array<uint32_t, kStripes> next;
    std::copy_n(begin.begin(), kStripes, next.begin());
    for (size_t i = 0; i < n; ++i) order[next[stripe_of(slot_of(mixed[i]))]++] = static_cast<uint32_t>(i);
    if (access != Access::kLook) check_limit(ids, mixed, order, begin);
    for (uint32_t s = 0; s < kStripes; ++s)
      if (begin[s] != begin[s + 1])
        visit_stripe(*stripes_[s], ids, mixed, order + begin[s], begin[s + 1] - begin[s], access, now, touch);
  }

  // Overlaps cache misses: while one block is visited, the index entries and rows of the next are prefetched.
  template <typename Touch>
  void visit_stripe(Stripe& stripe, const int64_t* ids, const uint64_t* mixed, const uint32_t* order, size_t n,
                    Access access, uint32_t now, Touch& touch) {
    const bool near = access == Access::kLook;
    const size_t fetched = near || access == Access::kCreate ? value_bytes_ : value_bytes_ + 4 * state_floats_;
    std::array<uint32_t, kBlock> found;
    std::unique_lock<std::mutex> guard(stripe.lock, std::try_to_lock);
    if (!guard) {
      const auto began = std::chrono::steady_clock::now();
      guard.lock();
      waited_ += static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count());
    }
    const size_t before = stripe.bytes();
    for (size_t i = 0; i < std::min(n, kBlock); ++i) stripe.index.prefetch(mixed[order[i]], near);
    for (size_t start = 0; start < n; start += kBlock) {
      const size_t stop = std::min(n, start + kBlock);
      for (size_t i = stop; i < std::min(n, stop + kBlock); ++i) stripe.index.prefetch(mixed[order[i]], near);
      for (size_t i = start; i < stop; ++i) {
        const uint32_t row = resolve(stripe, ids[order[i]], mixed[order[i]], access);
        found[i - start] = row;
        if (!(row & Index::kCounting)) stripe.rows.prefetch(row, fetched, near);
      }
      for (size_t i = start; i < stop; ++i) {
        const uint32_t row = found[i - start];
        if (row & Index::kCounting) {
          touch(order[i], ids[order[i]], static_cast<char*>(nullptr), static_cast<RowMeta*>(nullptr));
          continue;
        }
        RowMeta& meta = stripe.rows.meta(row);
        if (access != Access::kLook) meta.used_at = now;
        touch(order[i], ids[order[i]], stripe.rows.at(row), &meta);
      }
    }
    if (stripe.bytes() != before) budget_->change(before, stripe.bytes());
  }

  // Returns the row of `id`; with kCounting set if it has none.
  uint32_t resolve(Stripe& stripe, int64_t id, uint64_t mixed, Access access) {
    if (access == Access::kLook || (access == Access::kUpdate && settings_.admit_after > 1))
      return stripe.index.find(id, mixed);  // kAbsent has kCounting set
    uint32_t* place = stripe.index.find_or_insert(id, mixed);
    if (!(*place & Index::kCounting)) return access == Access::kMake ? Index::kAbsent : *place;
    const uint32_t seen = *place == Index::kAbsent ? 1 : (*place & ~Index::kCounting) + 1;
    if (seen < settings_.admit_after && access < Access::kPut) return *place = Index::kCounting | seen;
    const uint32_t row = stripe.rows.add();
    *place = row;
    if (access != Access::kPut) begin(stripe.rows.at(row), id);  // otherwise the caller writes all of it
    changed(stripe.rows.meta(row) = {0, 0});
    return row;
  }

  // Called under the stripe's lock: a thread that begins a generation and then visits the stripe sees all later changes.
  void changed(RowMeta& meta) const { meta.generation = generation_.load(std::memory_order_relaxed); }

  void begin(char* row, int64_t id) {
    const uint32_t columns = settings_.columns;
    if (settings_.half) {
      std::vector<float> wide(columns);
      settings_.initializer.fill(id, wide.data(), columns);
      for (uint32_t c = 0; c < columns; ++c) reinterpret_cast<uint16_t*>(row)[c] = narrowed(wide[c]);
    } else {
      settings_.initializer.fill(id, reinterpret_cast<float*>(row), columns);
    }
    settings_.hyper.begin(reinterpret_cast<float*>(row + value_bytes_), columns);
  }

  // Refuses the whole batch if it would not fit, before any row is created.
  void check_limit(const int64_t* ids, const uint64_t* mixed, const uint32_t* order,
                   const std::array<uint32_t, kStripes + 1>& begin) {
    if (budget_->limit == 0) return;
    size_t bound = 0, exact = 0;  // if all ids were new, and with those that are new
    for (uint32_t s = 0; s < kStripes; ++s) {
      std::lock_guard<std::mutex> guard(stripes_[s]->lock);
      bound += stripes_[s]->growth(begin[s + 1] - begin[s]);
    }
    if (!budget_->is_exceeded_by(bound)) return;
    for (uint32_t s = 0; s < kStripes; ++s) {
      std::lock_guard<std::mutex> guard(stripes_[s]->lock);
      size_t fresh = 0;
      for (uint32_t i = begin[s]; i < begin[s + 1]; ++i)
        fresh += stripes_[s]->index.find(ids[order[i]], mixed[order[i]]) == Index::kAbsent;
      exact += stripes_[s]->growth(fresh);
    }
    if (budget_->is_exceeded_by(exact))
      throw MemoryLimit("table " + settings_.name + ": rows of new ids need " + std::to_string(exact) +
                        " bytes, but the tables of this ps hold " + std::to_string(budget_->used.load()) + " of " +
                        std::to_string(budget_->limit) +
                        "; raise the memory limit, add a ps, or let rows expire with ttl_s");
  }

  template <typename Of>
  size_t sum(Of of) const {
    size_t total = 0;
    for (const auto& stripe : stripes_) {
      std::lock_guard<std::mutex> guard(stripe->lock);
      total += of(*stripe);
    }
    return total;
  }

  Settings settings_;
  std::shared_ptr<Budget> budget_;
  uint32_t state_floats_;
  size_t value_bytes_;
  rules::Update update_;
  Arena arena_;
  std::array<std::unique_ptr<Stripe>, kStripes> stripes_;
  std::atomic<uint32_t> generation_{1};
  std::atomic<uint64_t> waited_{0};
};

}  // namespace elasticdl
