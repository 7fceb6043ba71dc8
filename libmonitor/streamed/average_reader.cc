#include "streamed/average_reader.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

// Elements of all parts that are in memory at a time, in addition to the mean.
constexpr int64_t kElementsTogether = int64_t{1} << 22;

using ReadPartTensor = absl::FunctionRef<absl::StatusOr<at::Tensor>(const WeightReader&)>;

// Rows of a tensor whose mean is made at a time. A shape of no dimensions is one row.
int64_t RowsTogether(absl::Span<const int64_t> shape, size_t parts) {
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t width = std::max<int64_t>(1, ElementsOf(shape) / std::max<int64_t>(1, rows));
  return std::clamp(kElementsTogether / static_cast<int64_t>(parts) / width, int64_t{1},
                    std::max<int64_t>(1, rows));
}

absl::StatusOr<at::Tensor> MeanOfParts(const std::vector<AverageReader::Part>& parts,
                                       ReadPartTensor read) {
  // As MeanOf, with one part in memory at a time: an expert is a row of a stack.
  return Guard([&]() -> absl::StatusOr<at::Tensor> {
    const at::NoGradGuard no_grad;
    at::Tensor sum;
    for (const auto& [name, reader] : parts) {
      PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor value, read(*reader));
      if (sum.defined()) {
        sum.add_(value);
      } else {
        sum = value.to(at::kDouble);
      }
    }
    return sum.div_(at::full({}, static_cast<double>(std::ssize(parts)), sum.options()))
        .to(at::kFloat);
  });
}

}  // namespace

absl::StatusOr<AverageReader> AverageReader::Create(std::vector<Part> parts) {
  if (parts.empty()) return absl::InvalidArgumentError("there are no checkpoints to average");
  const std::vector<std::string> names = parts.front().second->Names();
  for (const auto& [name, reader] : parts) {
    const std::vector<std::string> own = reader->Names();
    std::vector<std::string> differing;
    std::set_symmetric_difference(names.begin(), names.end(), own.begin(), own.end(),
                                  std::back_inserter(differing));
    if (differing.empty()) continue;
    return absl::InvalidArgumentError(StrCat("checkpoints ", Quoted(parts.front().first), " and ",
                                             Quoted(name), " have other tensors; only one has ",
                                             Quoted(differing.front())));
  }
  return AverageReader(std::move(parts));
}

absl::StatusOr<std::vector<int64_t>> AverageReader::Shape(std::string_view name) const {
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<int64_t> shape, parts_.front().second->Shape(name));
  for (const auto& [part, reader] : parts_) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> own, reader->Shape(name));
    if (own == shape) continue;
    return absl::InvalidArgumentError(StrCat(
        "tensor ", Quoted(name), " is [", absl::StrJoin(shape, ", "), "] in ",
        Quoted(parts_.front().first), " and [", absl::StrJoin(own, ", "), "] in ", Quoted(part)));
  }
  return shape;
}

absl::StatusOr<at::Tensor> AverageReader::Read(std::string_view name) const {
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Shape(name));
  if (shape.empty()) {
    return MeanOfParts(parts_, [&](const WeightReader& reader) { return reader.Read(name); });
  }
  return Guard([&]() -> absl::StatusOr<at::Tensor> {
    at::NoGradGuard no_grad;
    const at::Tensor mean = at::empty(shape, at::kFloat);
    const int64_t step = RowsTogether(shape, parts_.size());
    std::vector<int64_t> rows;
    for (int64_t first = 0; first < shape[0]; first += step) {
      rows.resize(static_cast<size_t>(std::min(step, shape[0] - first)));
      std::iota(rows.begin(), rows.end(), first);
      PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor piece, ReadRows(name, rows));
      mean.narrow(0, first, std::ssize(rows)).copy_(piece);
    }
    return mean;
  });
}

absl::StatusOr<at::Tensor> AverageReader::ReadRows(std::string_view name,
                                                   absl::Span<const int64_t> rows) const {
  return MeanOfParts(parts_,
                     [&](const WeightReader& reader) { return reader.ReadRows(name, rows); });
}

int64_t AverageReader::ReadingBytes(std::string_view name) const {
  const auto shape = parts_.front().second->Shape(name);
  if (!shape.ok()) return 0;
  const int64_t rows = shape->empty() ? 1 : std::max<int64_t>(1, shape->front());
  const int64_t piece = ElementsOf(*shape) / rows * RowsTogether(*shape, parts_.size());
  int64_t reading = 0;
  for (const auto& [part, reader] : parts_) {
    reading = std::max(reading, reader->ReadingBytes(name));
  }
  // The sum in float64, and a part in float32 and, as it is added, in float64.
  return (8 + 4 + 8) * piece + reading;
}

}  // namespace ptqwatch::internal
