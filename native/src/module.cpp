// The Python bindings of the native core of ps: NumPy arrays in and out; calls over a batch release the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "dedupe.h"
#include "table.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace elasticdl;

namespace {

using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MatrixOut = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Inverse = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FlagsOut = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Halves = nb::ndarray<const uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using HalvesOut = nb::ndarray<uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Owners = nb::ndarray<const uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
using Vector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <typename T>
using Table2 = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

// An array that owns the values of the vector.
template <typename T>
Vector<T> array(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Vector<T>(kept->data(), {kept->size()}, owner);
}

template <typename T>
Table2<T> matrix(std::vector<T>&& values, size_t rows, size_t columns) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Table2<T>(kept->data(), {rows, columns}, owner);
}

void expect(bool is_so, const std::string& message) {
  if (!is_so) throw nb::value_error(message.c_str());
}

template <typename Array>
void expect_shape(const char* what, const Array& found, size_t rows, size_t columns) {
  expect(found.shape(0) == rows && found.shape(1) == columns,
         std::string(what) + ": expected " + std::to_string(rows) + " x " + std::to_string(columns) + ". Received: " +
             std::to_string(found.shape(0)) + " x " + std::to_string(found.shape(1)));
}

void pull(Table& table, Ids ids, MatrixOut out, uint32_t now, bool create) {
  expect_shape("out", out, ids.shape(0), table.settings().columns);
  nb::gil_scoped_release released;
  table.pull(ids.data(), ids.shape(0), out.data(), now, create);
}

size_t push(Table& table, Ids ids, Matrix gradients, double rate, uint64_t step, uint32_t now) {
  expect_shape("gradients", gradients, ids.shape(0), table.settings().columns);
  nb::gil_scoped_release released;
  return table.push(ids.data(), ids.shape(0), gradients.data(), rate, step, now);
}

void load(Table& table, Ids ids, Matrix values, Matrix state, uint32_t now) {
  expect_shape("values", values, ids.shape(0), table.settings().columns);
  expect_shape("state", state, ids.shape(0), table.state_floats());
  nb::gil_scoped_release released;
  table.load(ids.data(), ids.shape(0), values.data(), state.data(), now);
}

Vector<uint8_t> put(Table& table, Ids ids, Matrix values, uint32_t now) {
  expect_shape("values", values, ids.shape(0), table.settings().columns);
  std::vector<uint8_t> made(ids.shape(0));
  {
    nb::gil_scoped_release released;
    table.put(ids.data(), ids.shape(0), values.data(), now, made.data());
  }
  return array(std::move(made));
}

Vector<uint8_t> find(Table& table, Ids ids) {
  std::vector<uint8_t> has(ids.shape(0));
  {
    nb::gil_scoped_release released;
    table.find(ids.data(), ids.shape(0), has.data());
  }
  return array(std::move(has));
}

nb::tuple collect(Table& table, uint32_t stripe, Flags slots, uint32_t since) {
  expect(stripe < kStripes, "stripe: expected a number below " + std::to_string(kStripes));
  expect(slots.shape(0) == kSlots, "slots: expected " + std::to_string(kSlots) + " flags");
  std::vector<int64_t> ids;
  std::vector<float> values, state;
  {
    nb::gil_scoped_release released;
    table.collect(stripe, slots.data(), since, ids, values, state);
  }
  const size_t rows = ids.size();
  return nb::make_tuple(array(std::move(ids)), matrix(std::move(values), rows, table.settings().columns),
                        matrix(std::move(state), rows, table.state_floats()));
}

size_t remove_slots(Table& table, Flags slots) {
  expect(slots.shape(0) == kSlots, "slots: expected " + std::to_string(kSlots) + " flags");
  nb::gil_scoped_release released;
  return table.remove(slots.data(), 0);
}

size_t evict(Table& table, uint32_t before) {
  nb::gil_scoped_release released;
  return table.remove(nullptr, before);
}

nb::tuple unique_ids(Ids ids) {
  std::vector<int32_t> inverse(ids.shape(0));
  std::vector<int64_t> found;
  {
    nb::gil_scoped_release released;
    found = unique(ids.data(), ids.shape(0), inverse.data());
  }
  return nb::make_tuple(array(std::move(found)), array(std::move(inverse)));
}

void sum_segments(Matrix rows, Inverse inverse, MatrixOut out) {
  expect(inverse.shape(0) == rows.shape(0), "inverse: expected one number for each row");
  expect(out.shape(1) == rows.shape(1), "out: expected as many columns as rows has");
  nb::gil_scoped_release released;
  bool fits = true;
  for (size_t i = 0; i < inverse.shape(0); ++i) fits &= static_cast<uint32_t>(inverse.data()[i]) < out.shape(0);
  expect(fits, "inverse: expected numbers below " + std::to_string(out.shape(0)));
  segment_sum(rows.data(), inverse.data(), rows.shape(0), static_cast<uint32_t>(rows.shape(1)), out.data(), out.shape(0));
}

nb::tuple plan_ids(Ids ids, Owners owner, uint32_t owners) {
  expect(owner.shape(0) == kSlots, "owner: expected one for each of " + std::to_string(kSlots) + " slots");
  bool fits = true;
  for (size_t s = 0; s < kSlots; ++s) fits &= owner.data()[s] < owners;
  expect(fits, "owner: expected numbers below the number of ps");
  Plan made;
  {
    nb::gil_scoped_release released;
    made = plan(ids.data(), ids.shape(0), owner.data(), owners);
  }
  return nb::make_tuple(array(std::move(made.ids)), array(std::move(made.inverse)), array(std::move(made.counts)));
}

size_t foreign(Ids ids, Flags held) {
  expect(held.shape(0) == kSlots, "held: expected " + std::to_string(kSlots) + " flags");
  nb::gil_scoped_release released;
  return count_foreign(ids.data(), ids.shape(0), held.data());
}

void touch_slots(Ids ids, FlagsOut flags) {
  expect(flags.shape(0) == kSlots, "flags: expected " + std::to_string(kSlots));
  nb::gil_scoped_release released;
  touch(ids.data(), ids.shape(0), flags.data());
}

void mark_slots(nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> top,
                nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> window, Flags flags, int64_t number) {
  expect(top.shape(0) == kSlots && window.shape(0) == kSlots && flags.shape(0) == kSlots,
         "top, window, flags: expected one for each of " + std::to_string(kSlots) + " slots");
  mark(top.data(), window.data(), flags.data(), number);
}

void narrow(Matrix values, HalvesOut out, bool brain) {
  expect_shape("out", out, values.shape(0), values.shape(1));
  const float* from = values.data();
  uint16_t* to = out.data();
  const size_t n = values.shape(0) * values.shape(1);
  nb::gil_scoped_release released;
  if (brain)
    for (size_t i = 0; i < n; ++i) to[i] = narrowed(from[i]);
  else
    for (size_t i = 0; i < n; ++i) to[i] = narrowed_half(from[i]);
}

void widen(Halves values, MatrixOut out, bool brain) {
  expect_shape("out", out, values.shape(0), values.shape(1));
  const uint16_t* from = values.data();
  float* to = out.data();
  const size_t n = values.shape(0) * values.shape(1);
  nb::gil_scoped_release released;
  if (brain)
    for (size_t i = 0; i < n; ++i) to[i] = widened(from[i]);
  else
    for (size_t i = 0; i < n; ++i) to[i] = widened_half(from[i]);
}

Vector<uint16_t> slots(Ids ids) {
  std::vector<uint16_t> found(ids.shape(0));
  for (size_t i = 0; i < found.size(); ++i)
    found[i] = static_cast<uint16_t>(slot_of(mix64(static_cast<uint64_t>(ids.data()[i]))));
  return array(std::move(found));
}

int64_t not_finite(Matrix values) {
  const size_t n = values.shape(0) * values.shape(1);
  nb::gil_scoped_release released;
  const size_t at = first_not_finite(values.data(), n);
  return at == n ? -1 : static_cast<int64_t>(at / values.shape(1));
}

std::unique_ptr<Table> make_table(std::string name, uint32_t columns, int initial, float low, float high, uint64_t seed,
                                  Hyper hyper, std::shared_ptr<Budget> budget, bool half, uint32_t admit_after) {
  expect(columns > 0, "columns: expected 1 or more");
  expect(admit_after > 0, "admit_after: expected 1 or more");
  Settings settings{std::move(name), columns, {static_cast<Initial>(initial), low, high, seed}, hyper, half, admit_after};
  return std::make_unique<Table>(std::move(settings), std::move(budget));
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a ps may end while its threads hold tables
  m.doc() = "Embedding tables, and functions over batches of ids.";
  m.attr("SLOTS") = kSlots;
  m.attr("STRIPES") = kStripes;
  nb::exception<MemoryLimit>(m, "MemoryLimit", PyExc_MemoryError);

  nb::class_<Hyper>(m, "Hyper")
      .def("__init__",
           [](Hyper* self, int rule, int dialect, float epsilon, float momentum, bool nesterov, float beta1, float beta2,
              float initial, float weight_decay, float l1, float l2, float power, float beta, bool centered) {
             new (self) Hyper{static_cast<Rule>(rule), static_cast<Dialect>(dialect), epsilon, momentum, nesterov, beta1,
                              beta2, initial, weight_decay, l1, l2, power, beta, centered};
           },
           "rule"_a, "dialect"_a = 0, nb::kw_only(), "epsilon"_a = 0.0f, "momentum"_a = 0.0f, "nesterov"_a = false,
           "beta1"_a = 0.0f, "beta2"_a = 0.0f, "initial"_a = 0.0f, "weight_decay"_a = 0.0f, "l1"_a = 0.0f, "l2"_a = 0.0f,
           "power"_a = -0.5f, "beta"_a = 0.0f, "centered"_a = false);

  nb::class_<Budget>(m, "Budget")
      .def("__init__", [](Budget* self, uint64_t limit) { new (self) Budget(limit); }, "limit"_a = 0)
      .def_ro("limit", &Budget::limit)
      .def_prop_ro("used", [](const Budget& b) { return b.used.load(); });

  nb::class_<Table>(m, "Table")
      .def(nb::new_(&make_table), "name"_a, "columns"_a, nb::kw_only(), "initial"_a, "low"_a, "high"_a, "seed"_a, "hyper"_a,
           "budget"_a, "half"_a = false, "admit_after"_a = 1)
      .def("pull", &pull, "ids"_a.noconvert(), "out"_a.noconvert(), "now"_a = 0, "create"_a = true)
      .def("push", &push, "ids"_a.noconvert(), "gradients"_a.noconvert(), "rate"_a, "step"_a, "now"_a = 0)
      .def("load", &load, "ids"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(), "now"_a = 0)
      .def("put", &put, "ids"_a.noconvert(), "values"_a.noconvert(), "now"_a = 0)
      .def("find", &find, "ids"_a.noconvert())
      .def("collect", &collect, "stripe"_a, "slots"_a.noconvert(), "since"_a = 0)
      .def("remove_slots", &remove_slots, "slots"_a.noconvert())
      .def("evict", &evict, "before"_a)
      .def("turn", &Table::turn)
      .def_prop_ro("generation", &Table::generation)
      .def_prop_ro("columns", [](const Table& t) { return t.settings().columns; })
      .def_prop_ro("state_columns", &Table::state_floats)
      .def_prop_ro("waited_ns", &Table::waited)
      .def_prop_ro("rows", &Table::rows)
      .def_prop_ro("counting", &Table::counting)
      .def_prop_ro("bytes", &Table::bytes);

  m.def("unique", &unique_ids, "ids"_a.noconvert());
  m.def("segment_sum", &sum_segments, "rows"_a.noconvert(), "inverse"_a.noconvert(), "out"_a.noconvert());
  m.def("plan", &plan_ids, "ids"_a.noconvert(), "owner"_a.noconvert(), "owners"_a);
  m.def("foreign", &foreign, "ids"_a.noconvert(), "held"_a.noconvert());
  m.def("touch", &touch_slots, "ids"_a.noconvert(), "flags"_a.noconvert());
  m.def("mark", &mark_slots, "top"_a.noconvert(), "window"_a.noconvert(), "flags"_a.noconvert(), "number"_a);
  m.def("narrow", &narrow, "values"_a.noconvert(), "out"_a.noconvert(), "brain"_a);
  m.def("widen", &widen, "values"_a.noconvert(), "out"_a.noconvert(), "brain"_a);
  m.def("slots", &slots, "ids"_a.noconvert());
  m.def("not_finite", &not_finite, "values"_a.noconvert(), "The first row with a value that is not finite, or -1.");
}
