#include "ptqwatch/offline/average_weights.h"

#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "analysis/decay_shape.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/offline/safetensors.h"
#include "snapshot/average_weights.h"

namespace ptqwatch {
namespace {

using internal::StrCat;

std::optional<at::ScalarType> ScalarTypeOf(TensorDtype dtype) {
  switch (dtype) {
    case TensorDtype::kBool:
      return at::kBool;
    case TensorDtype::kU8:
      return at::kByte;
    case TensorDtype::kI8:
      return at::kChar;
    case TensorDtype::kI16:
      return at::kShort;
    case TensorDtype::kI32:
      return at::kInt;
    case TensorDtype::kI64:
      return at::kLong;
    case TensorDtype::kF16:
      return at::kHalf;
    case TensorDtype::kBF16:
      return at::kBFloat16;
    case TensorDtype::kF32:
      return at::kFloat;
    case TensorDtype::kF64:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

// InvalidArgument if `file` and `first` have different tensors.
absl::Status CheckSameTensors(const SafetensorsFile& first, const SafetensorsFile& file) {
  for (const auto& [name, info] : first.tensors()) {
    const TensorInfo* other = file.Find(name);
    if (other == nullptr) {
      return absl::InvalidArgumentError(
          StrCat("'", file.path(), "' has no tensor '", name, "', which '", first.path(), "' has"));
    }
    if (other->dtype != info.dtype || other->shape != info.shape) {
      return absl::InvalidArgumentError(StrCat("tensor '", name, "' is ", info.Describe(), " in '",
                                               first.path(), "' and ", other->Describe(), " in '",
                                               file.path(), "'"));
    }
  }
  for (const auto& [name, info] : file.tensors()) {
    if (first.Find(name) != nullptr) continue;
    return absl::InvalidArgumentError(
        StrCat("'", first.path(), "' has no tensor '", name, "', which '", file.path(), "' has"));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Read(const SafetensorsFile& file, const std::string& name,
                                const TensorInfo& info, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(info.shape, dtype);
  PTQWATCH_RETURN_IF_ERROR(file.ReadBytes(
      name, 0, absl::MakeSpan(static_cast<char*>(tensor.mutable_data_ptr()), tensor.nbytes())));
  return tensor;
}

absl::StatusOr<at::Tensor> Average(const std::vector<SafetensorsFile>& files,
                                   const std::string& name, const TensorInfo& info,
                                   const CheckpointAverageOptions& options) {
  const std::optional<at::ScalarType> dtype = ScalarTypeOf(info.dtype);
  if (!dtype) {
    return absl::InvalidArgumentError(StrCat("tensor '", name, "' in '", files.front().path(),
                                             "' is ", info.Describe(),
                                             "; tensors of this type cannot be averaged"));
  }
  if (!at::isFloatingType(*dtype)) return Read(files.back(), name, info, *dtype);
  std::vector<at::Tensor> values;
  at::Tensor mean;
  for (const SafetensorsFile& file : files) {
    PTQWATCH_ASSIGN_OR_RETURN(at::Tensor value, Read(file, name, info, *dtype));
    if (options.decay > 0) {
      internal::AddToExponential(value, options.decay, mean);
    } else {
      values.push_back(std::move(value));
    }
  }
  if (options.decay > 0) return mean.to(*dtype);
  if (!options.shape) return internal::MeanOf(values);
  return internal::WeightedSumOf(values, internal::MergeWeights(*options.shape, values.size()));
}

absl::StatusOr<std::vector<NamedTensor>> AverageOrThrow(absl::Span<const std::string> paths,
                                                        const CheckpointAverageOptions& options) {
  if (paths.empty()) return absl::InvalidArgumentError("there are no checkpoints to average");
  if (!(options.decay >= 0 && options.decay < 1)) {
    return absl::InvalidArgumentError(StrCat("CheckpointAverageOptions.decay = ", options.decay,
                                             ": must be zero (the mean) or in (0, 1)"));
  }
  if (options.decay > 0 && options.shape) {
    return absl::InvalidArgumentError(StrCat("CheckpointAverageOptions.decay = ", options.decay,
                                             " and .shape = ", ToString(*options.shape),
                                             ": set only one of them"));
  }
  at::NoGradGuard no_grad;
  std::vector<SafetensorsFile> files;
  for (const std::string& path : paths) {
    PTQWATCH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    if (!files.empty()) PTQWATCH_RETURN_IF_ERROR(CheckSameTensors(files.front(), file));
    files.push_back(std::move(file));
  }
  std::vector<NamedTensor> averages;
  for (const auto& [name, info] : files.front().tensors()) {
    PTQWATCH_ASSIGN_OR_RETURN(at::Tensor average, Average(files, name, info, options));
    const bool floating = at::isFloatingType(average.scalar_type());
    averages.push_back({name, std::move(average), floating});
  }
  return averages;
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> AverageCheckpoints(
    absl::Span<const std::string> safetensors_paths, const CheckpointAverageOptions& options) {
  return internal::Guard([&] { return AverageOrThrow(safetensors_paths, options); });
}

}  // namespace ptqwatch
