// The native core of features as Python sees it: the counter of CSV values, vocabularies and fingerprints. The GIL is
// released wherever text is read or values are ordered.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "counting/counter.h"
#include "counting/vocabulary_index.h"
#include "farmhash.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace elasticdl::counting;

namespace {

using Block = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

size_t count(Counter& counter, Block block, size_t begin, size_t end, size_t max_rows) {
  if (end >= Cell::kDoubled) throw nb::value_error("a block is less than 2 GiB");
  if (begin > end || end + kPadding > block.shape(0)) throw nb::value_error("a block needs 64 bytes behind its end");
  nb::gil_scoped_release released;
  return counter.count(reinterpret_cast<const char*>(block.data()), begin, end, max_rows);
}

Summary summarize(Counter& counter, size_t column, const Question& question) {
  nb::gil_scoped_release released;
  return counter.summarize(column, question);
}

template <typename Number>
using Array = nb::ndarray<nb::numpy, Number, nb::ndim<1>>;

template <typename Number>
Array<Number> array(std::vector<Number>&& values) {
  auto* owned = new std::vector<Number>(std::move(values));
  nb::capsule owner(owned, [](void* vector) noexcept { delete static_cast<std::vector<Number>*>(vector); });
  return Array<Number>(owned->data(), {owned->size()}, owner);
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

Array<int64_t> counts(const std::vector<Value>& values) {
  std::vector<int64_t> numbers;
  numbers.reserve(values.size());
  for (const Value& value : values) numbers.push_back(static_cast<int64_t>(value.count));
  return array(std::move(numbers));
}

template <typename Offset>
using Offsets = nb::ndarray<const Offset, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The number of values between offsets, as Arrow has them: one offset more than there are values.
template <typename Offset>
size_t count_values(Block letters, Offsets<Offset> offsets) {
  const size_t count = offsets.shape(0) ? offsets.shape(0) - 1 : 0;
  const Offset* bounds = offsets.data();
  for (size_t index = 0; index < count; ++index)
    if (bounds[index] < 0 || bounds[index + 1] < bounds[index]) throw nb::value_error("offsets must not decrease");
  if (count && static_cast<size_t>(bounds[count]) > letters.shape(0))
    throw nb::value_error("offsets must end with the letters");
  return count;
}

Array<int64_t> find(const VocabularyIndex& index, Block letters, Offsets<int32_t> offsets) {
  std::vector<int64_t> positions(count_values(letters, offsets));
  {
    nb::gil_scoped_release released;
    index.find(reinterpret_cast<const char*>(letters.data()), offsets.data(), positions.size(), positions.data());
  }
  return array(std::move(positions));
}

template <typename Offset>
Array<uint64_t> fingerprints(Block letters, Offsets<Offset> offsets) {
  std::vector<uint64_t> hashes(count_values(letters, offsets));
  {
    nb::gil_scoped_release released;
    elasticdl::farmhash::fingerprints(reinterpret_cast<const char*>(letters.data()), offsets.data(), hashes.size(),
                                      hashes.data());
  }
  return array(std::move(hashes));
}

std::vector<std::pair<std::string, uint64_t>> odd(const Summary& summary) {
  std::vector<std::pair<std::string, uint64_t>> values;
  for (const Value& value : summary.odd) values.emplace_back(value.text, value.count);
  return values;
}

}  // namespace

NB_MODULE(_native, module) {
  nb::set_leak_warnings(false);  // a process may end while models and caches of frameworks hold vocabularies
  nb::exception<Irregular>(module, "Irregular");
  nb::exception<Stopped>(module, "Stopped");
  module.attr("PADDING") = kPadding;

  nb::class_<Question>(module, "Question")
      .def(
          "__init__",
          [](Question* question, uint64_t min_count, size_t max_values, std::string separator, uint64_t steps,
             uint64_t max_fractions, size_t examples) {
            new (question) Question{min_count, max_values, std::move(separator), steps, max_fractions, examples};
          },
          nb::kw_only(), "min_count"_a, "max_values"_a, "separator"_a, "steps"_a, "max_fractions"_a, "examples"_a);

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

  nb::class_<VocabularyIndex>(module, "VocabularyIndex")
      .def(
          "__init__",
          [](VocabularyIndex* index, nb::bytes letters, nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> ends) {
            new (index) VocabularyIndex({letters.c_str(), letters.size()}, {ends.data(), ends.data() + ends.shape(0)});
          },
          "letters"_a, "ends"_a)
      .def("find", &find, "letters"_a, "offsets"_a);

  module.def("fingerprints", &fingerprints<int32_t>, "letters"_a, "offsets"_a);
  module.def("fingerprints", &fingerprints<int64_t>, "letters"_a, "offsets"_a);

  nb::class_<Counter>(module, "Counter")
      .def(nb::init<size_t, std::vector<size_t>, char, size_t, size_t, std::string>(), nb::kw_only(), "columns"_a, "selected"_a,
           "delimiter"_a, "memory_bytes"_a, "threads"_a, "directory"_a)
      .def("count", &count, "block"_a, "begin"_a, "end"_a, "max_rows"_a)
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
