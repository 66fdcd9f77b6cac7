// The counter of CSV values as Python sees it: the GIL is released wherever text is read or values are ordered.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "counting/counter.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace elasticdl::counting;

namespace {

using Block = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

size_t count(Counter& counter, Block block, size_t begin, size_t end, size_t most_rows) {
  if (begin > end || end + kPadding > block.shape(0)) throw nb::value_error("a block needs 64 bytes behind its end");
  nb::gil_scoped_release released;
  return counter.count(reinterpret_cast<const char*>(block.data()), begin, end, most_rows);
}

Summary summarize(Counter& counter, size_t column, const Question& question) {
  nb::gil_scoped_release released;
  return counter.summarize(column, question);
}

nb::object text(const std::string& value) {
  PyObject* made = PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::tuple filled(size_t size, const std::vector<Value>& from, nb::object (*of)(const Value&)) {
  nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(size)));
  if (!made.is_valid()) throw nb::python_error();
  for (size_t place = 0; place < size; ++place)
    PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(place), of(from[place]).release().ptr());
  return nb::borrow<nb::tuple>(made);
}

nb::tuple texts(const std::vector<Value>& values) {
  return filled(values.size(), values, [](const Value& value) { return text(value.text); });
}

// The letters of all values, and where each ends.
nb::tuple joined(const std::vector<Value>& values) {
  size_t bytes = 0;
  for (const Value& value : values) bytes += value.text.size();
  nb::object letters = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!letters.is_valid()) throw nb::python_error();
  char* next = PyBytes_AS_STRING(letters.ptr());
  auto* ends = new std::vector<int64_t>();
  nb::capsule owner(ends, [](void* made) noexcept { delete static_cast<std::vector<int64_t>*>(made); });
  ends->reserve(values.size());
  int64_t end = 0;
  for (const Value& value : values) {
    memcpy(next + end, value.text.data(), value.text.size());
    ends->push_back(end += static_cast<int64_t>(value.text.size()));
  }
  return nb::make_tuple(letters, nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>(ends->data(), {ends->size()}, owner));
}

nb::tuple counts(const std::vector<Value>& values) {
  return filled(values.size(), values, [](const Value& value) -> nb::object { return nb::int_(value.count); });
}

}  // namespace

NB_MODULE(_counter, module) {
  nb::exception<Irregular>(module, "Irregular");
  nb::exception<Stopped>(module, "Stopped");
  module.attr("PADDING") = kPadding;

  nb::class_<Question>(module, "Question")
      .def(
          "__init__",
          [](Question* made, uint64_t least_count, size_t most_values, std::string separator, uint64_t steps,
             uint64_t most_fractions, size_t examples) {
            new (made) Question{least_count, most_values, std::move(separator), steps, most_fractions, examples};
          },
          nb::kw_only(), "least_count"_a, "most_values"_a, "separator"_a, "steps"_a, "most_fractions"_a, "examples"_a);

  nb::class_<Summary>(module, "Summary")
      .def_ro("present", &Summary::present)
      .def_ro("kinds", &Summary::kinds)
      .def_ro("numbers", &Summary::numbers)
      .def_ro("dates", &Summary::dates)
      .def_ro("fractions", &Summary::fractions)
      .def_ro("separated", &Summary::separated)
      .def_ro("longest", &Summary::longest)
      .def_ro("words", &Summary::words)
      .def_ro("frequent", &Summary::frequent)
      .def_ro("has_range", &Summary::has_range)
      .def_ro("minimum", &Summary::minimum)
      .def_ro("maximum", &Summary::maximum)
      .def_ro("mean", &Summary::mean)
      .def_ro("deviation", &Summary::deviation)
      .def_ro("quantiles", &Summary::quantiles)
      .def("values", [](const Summary& summary) { return joined(summary.values); })
      .def("counts", [](const Summary& summary) { return counts(summary.values); })
      .def("odd_values", [](const Summary& summary) { return texts(summary.odd); })
      .def("odd_counts", [](const Summary& summary) { return counts(summary.odd); });

  nb::class_<Counter>(module, "Counter")
      .def(nb::init<size_t, std::vector<size_t>, char, size_t, size_t, std::string>(), nb::kw_only(), "columns"_a, "wanted"_a,
           "delimiter"_a, "memory_bytes"_a, "threads"_a, "directory"_a)
      .def("count", &count, "block"_a, "begin"_a, "end"_a, "most_rows"_a)
      .def("add_column", &Counter::add_column)
      .def("add", [](Counter& counter, size_t column, const std::string& value, uint64_t rows) {
        counter.add(column, value, rows);
      }, "column"_a, "value"_a, "rows"_a)
      .def("finish", &Counter::finish)
      .def("summarize", &summarize, "column"_a, "question"_a)
      .def("stop", &Counter::stop)
      .def_prop_ro("rows", &Counter::rows)
      .def_prop_ro("has_crlf", &Counter::has_crlf)
      .def_prop_ro("spilled_bytes", &Counter::spilled_bytes);
}
