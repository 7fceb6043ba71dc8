#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/quantizer.h"
#include "quantize/kernels/gram.h"
#include "quantize/kernels/non_finite.h"
#include "quantize/kernels/parallel.h"

namespace ptqwatch {
namespace {

GramStatistics NoStatistics(int64_t inputs) {
  GramStatistics stats;
  stats.inputs = inputs;
  return stats;
}

}  // namespace

GramAccumulator::GramAccumulator(int64_t inputs) : stats_(NoStatistics(inputs)) {}

absl::Status GramAccumulator::Add(MatrixView x, const ExecutionContext& context) try {
  const int64_t d = stats_.inputs;
  PTQWATCH_RETURN_IF_ERROR(internal::CheckThreads(context));
  if (d < 0) return absl::InvalidArgumentError(internal::StrCat("inputs is ", d));
  if (x.cols != d || x.rows < 0) {
    return absl::InvalidArgumentError(internal::StrCat(
        "x is [", x.rows, ", ", x.cols, "], but the accumulator was made for ", d, " inputs"));
  }
  if (x.rows == 0 || d == 0) {
    stats_.tokens += x.rows;
    return absl::OkStatus();
  }
  if (x.data == nullptr) return absl::InvalidArgumentError("x.data is null");
  if (stats_.sum.empty()) {
    stats_.sum.resize(static_cast<size_t>(d * d));
    stats_.abs_sum.resize(static_cast<size_t>(d));
    stats_.abs_max.resize(static_cast<size_t>(d));
  }
  double* abs_sum = stats_.abs_sum.data();
  float* abs_max = stats_.abs_max.data();

  std::vector<const float*> finite;
  finite.reserve(static_cast<size_t>(std::min(x.rows, internal::kGramGroupRows)));
  for (int64_t row = 0; row < x.rows;) {
    finite.clear();
    int64_t skipped = 0;
    for (; row < x.rows && static_cast<int64_t>(finite.size()) < internal::kGramGroupRows; ++row) {
      const float* values = x.data + row * d;
      if (internal::AnyNonFinite(values, d)) {
        ++skipped;
      } else {
        finite.push_back(values);
      }
      if (row % 256 == 255 && context.cancel.cancelled()) break;
    }
    const int64_t count = static_cast<int64_t>(finite.size());
    absl::Status status = context.Checkpoint();
    if (status.ok()) {
      status = internal::AddGram(
          count, d, [&finite](int64_t i, float*) { return finite[static_cast<size_t>(i)]; },
          stats_.sum.data(), context);
    }
    if (!status.ok()) {
      // The sums may contain part of a group.
      stats_ = NoStatistics(d);
      return status;
    }
    for (const float* values : finite) {
      for (int64_t j = 0; j < d; ++j) {
        const float magnitude = std::abs(values[j]);
        abs_sum[j] += static_cast<double>(magnitude);
        abs_max[j] = std::max(abs_max[j], magnitude);
      }
    }
    stats_.tokens += count;
    stats_.skipped_rows += skipped;
  }
  return absl::OkStatus();
} catch (...) {
  stats_ = NoStatistics(stats_.inputs);
  return internal::CaughtStatus("summing second moments");
}

GramStatistics GramAccumulator::Take() {
  const int64_t d = std::max<int64_t>(stats_.inputs, 0);
  GramStatistics taken = std::exchange(stats_, NoStatistics(stats_.inputs));
  taken.sum.resize(static_cast<size_t>(d * d));
  taken.abs_sum.resize(static_cast<size_t>(d));
  taken.abs_max.resize(static_cast<size_t>(d));
  // Copies in square blocks, so that neither triangle is accessed one cache line per number.
  constexpr int64_t kTile = 32;
  double* sum = taken.sum.data();
  for (int64_t i0 = 0; i0 < d; i0 += kTile) {
    for (int64_t j0 = i0; j0 < d; j0 += kTile) {
      for (int64_t i = i0; i < std::min(d, i0 + kTile); ++i) {
        for (int64_t j = std::max(j0, i + 1); j < std::min(d, j0 + kTile); ++j) {
          sum[j * d + i] = sum[i * d + j];
        }
      }
    }
  }
  return taken;
}

}  // namespace ptqwatch
