// The native core of boosting as Python sees it. The GIL is released while rows are computed.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "boosting/gradients.h"
#include "counting/threads.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace elasticdl::boosting;

namespace {

using Input = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

constexpr size_t kMinRows = 1 << 14;  // of a thread: fewer are not worth another one

// Runs `work(begin, end)` on pieces of [0, count).
template <typename Work>
void run_on_pieces(size_t count, size_t threads, Work&& work) {
  threads = std::max<size_t>(1, std::min(threads, count / kMinRows));
  elasticdl::counting::run_in_threads(
      threads, [&](size_t thread) { work(count * thread / threads, count * (thread + 1) / threads); });
}

void compute(int objective, Input margins, Input labels, nb::object weights, Output gradients, Output hessians,
             uint32_t classes, float parameter, float positive_weight, size_t threads) {
  const size_t rows = labels.size(), values = rows * classes;
  if (classes == 0 || margins.size() != values || gradients.size() != values || hessians.size() != values)
    throw nb::value_error("margins, gradients and hessians have one value for each row and class");
  if (objective < 0 || objective > static_cast<int>(Objective::kSoftmax)) throw nb::value_error("no such objective");
  if (classes > 1 && static_cast<Objective>(objective) != Objective::kSoftmax)
    throw nb::value_error("only softmax has classes");
  const float* weight = nullptr;
  Input given;
  if (!weights.is_none()) {
    given = nb::cast<Input>(weights);
    if (given.size() != rows) throw nb::value_error("one weight for each row");
    weight = given.data();
  }
  const Rows all{margins.data(), labels.data(), weight, gradients.data(), hessians.data(), parameter, positive_weight,
                 classes};
  nb::gil_scoped_release released;
  run_on_pieces(rows, threads, [&](size_t begin, size_t end) {
    compute_gradients(static_cast<Objective>(objective), all, begin, end);
  });
}

void sample(Output gradients, Output hessians, uint32_t classes, uint64_t first_record, uint64_t key, double share,
            size_t threads) {
  if (classes == 0 || gradients.size() != hessians.size() || gradients.size() % classes)
    throw nb::value_error("gradients and hessians have one value for each row and class");
  Rows all{};
  all.gradients = gradients.data(), all.hessians = hessians.data(), all.classes = classes;
  const auto threshold = static_cast<uint32_t>(std::min(share, 1.0) * 4294967295.0);
  nb::gil_scoped_release released;
  run_on_pieces(gradients.size() / classes, threads,
                [&](size_t begin, size_t end) { sample_rows(all, begin, end, first_record, key, threshold); });
}

float largest(Input values, size_t threads) {
  nb::gil_scoped_release released;
  std::vector<float> parts(std::max<size_t>(1, threads), 0.0f);
  const size_t count = std::max<size_t>(1, std::min(threads, values.size() / kMinRows));
  elasticdl::counting::run_in_threads(count, [&](size_t thread) {
    parts[thread] = largest_magnitude(values.data(), values.size() * thread / count, values.size() * (thread + 1) / count);
  });
  return largest_magnitude(parts.data(), 0, parts.size());
}

void snap_to_grid(Output values, float shift, size_t threads) {
  nb::gil_scoped_release released;
  run_on_pieces(values.size(), threads, [&](size_t begin, size_t end) { snap(values.data(), begin, end, shift); });
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "Gradients of boosting: the same bits wherever a row lies.";
  module.def("compute", &compute, "objective"_a, "margins"_a, "labels"_a, "weights"_a.none(), "gradients"_a,
             "hessians"_a, nb::kw_only(), "classes"_a, "parameter"_a, "positive_weight"_a, "threads"_a);
  module.def("sample", &sample, "gradients"_a, "hessians"_a, nb::kw_only(), "classes"_a, "first_record"_a, "key"_a,
             "share"_a, "threads"_a);
  module.def("largest", &largest, "values"_a, nb::kw_only(), "threads"_a);
  module.def("snap", &snap_to_grid, "values"_a, nb::kw_only(), "shift"_a, "threads"_a);
}
