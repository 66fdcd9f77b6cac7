// The counter of CSV values, and vocabularies, as Python sees them: the GIL is released wherever text is read or values
// are ordered.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "counting/counter.h"
#include "counting/places.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace elasticdl::counting;

namespace {

using Block = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

size_t count(Counter& counter, Block block, size_t begin, size_t end, size_t most_rows) {
  if (end >= Cell::kDoubled) throw nb::value_error("a block is less than 2 GiB");
  if (begin > end || end + kPadding > block.shape(0)) throw nb::value_error("a block needs 64 bytes behind its end");
  nb::gil_scoped_release released;
  return counter.count(reinterpret_cast<const char*>(block.data()), begin, end, most_rows);
}

Summary summarize(Counter& counter, size_t column, const Question& question) {
  nb::gil_scoped_release released;
  return counter.summarize(column, question);
}

using Wholes = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

Wholes array(std::vector<int64_t>&& values) {
  auto* kept = new std::vector<int64_t>(std::move(values));
  nb::capsule owner(kept, [](void* made) noexcept { delete static_cast<std::vector<int64_t>*>(made); });
  return Wholes(kept->data(), {kept->size()}, owner);
}

// The letters of all values, and where each ends.
nb::tuple joined(const std::vector<Value>& values) {
  size_t bytes = 0;
  for (const Value& value : values) bytes += value.text.size();
  nb::object letters = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!letters.is_valid()) throw nb::python_error();
  char* next = PyBytes_AS_STRING(letters.ptr());
  std::vector<int64_t> ends;
  ends.reserve(values.size());
  int64_t end = 0;
  for (const Value& value : values) {
    memcpy(next + end, value.text.data(), value.text.size());
    ends.push_back(end += static_cast<int64_t>(value.text.size()));
  }
  return nb::make_tuple(letters, array(std::move(ends)));
}

Wholes counts(const std::vector<Value>& values) {
  std::vector<int64_t> found;
  found.reserve(values.size());
  for (const Value& value : values) found.push_back(static_cast<int64_t>(value.count));
  return array(std::move(found));
}

using Offsets = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Values as Arrow has them: letters, and an offset more than there are values.
Wholes find(const Places& places, Block letters, Offsets offsets) {
  const size_t count = offsets.shape(0) ? offsets.shape(0) - 1 : 0;
  const int32_t* at = offsets.data();
  for (size_t next = 0; next < count; ++next)
    if (at[next] < 0 || at[next + 1] < at[next]) throw nb::value_error("offsets go up");
  if (count && static_cast<size_t>(at[count]) > letters.shape(0)) throw nb::value_error("offsets end with the letters");
  std::vector<int64_t> found(count);
  {
    nb::gil_scoped_release released;
    places.find(reinterpret_cast<const char*>(letters.data()), at, count, found.data());
  }
  return array(std::move(found));
}

std::vector<std::pair<std::string, uint64_t>> odd(const Summary& summary) {
  std::vector<std::pair<std::string, uint64_t>> found;
  for (const Value& value : summary.odd) found.emplace_back(value.text, value.count);
  return found;
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
      .def_prop_ro("odd", &odd);

  nb::class_<Places>(module, "Places")
      .def(
          "__init__",
          [](Places* made, nb::bytes letters, nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> ends) {
            new (made) Places({letters.c_str(), letters.size()}, {ends.data(), ends.data() + ends.shape(0)});
          },
          "letters"_a, "ends"_a)
      .def("find", &find, "letters"_a, "offsets"_a);

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
