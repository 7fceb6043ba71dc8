#include "snapshot/unit_losses.h"

#include <cmath>
#include <iterator>

#include "ATen/core/grad_mode.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {
namespace {

int64_t TokensOf(const Batch& batch) {
  if (batch.empty() || !batch[0].defined() || batch[0].dim() == 0) return 1;
  return at::isIntegralType(batch[0].scalar_type(), /*includeBool=*/false) ? batch[0].numel()
                                                                           : batch[0].size(0);
}

// Adds the number of examples of each unit, and of those that the model gets right.
absl::Status AddExamples(const LossValues& losses, UnitLosses& result) {
  const at::Tensor& correct = losses.correct;
  const int64_t units = std::ssize(result.sum);
  const bool of_units = correct.dim() > 0 && correct.size(0) == units;
  if (!of_units && losses.values.dim() > 0) {
    return absl::FailedPreconditionError(StrCat("losses returned LossValues::correct of shape ",
                                                ShapeText(correct), " for values of shape ",
                                                ShapeText(losses.values),
                                                "; dimension 0 must be the sequence in both"));
  }
  if (at::isComplexType(correct.scalar_type())) {
    return absl::FailedPreconditionError(
        "losses returned LossValues::correct of a complex type; expected bool or numbers");
  }
  const at::Tensor host =
      correct.to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU)).contiguous();
  const double* value = host.const_data_ptr<double>();
  const int64_t each = host.numel() / units;
  for (int64_t unit = 0; unit < units; ++unit) {
    double right = 0;
    double all = 0;
    for (int64_t i = 0; i < each; ++i, ++value) {
      if (std::isnan(*value)) continue;
      if (*value < 0 || *value > 1) {
        return absl::FailedPreconditionError(
            StrCat("losses returned LossValues::correct with a value of ", *value,
                   "; expected 0 (wrong) to 1 (right), or NaN for no example"));
      }
      right += *value;
      all += 1;
    }
    result.correct.push_back(right);
    result.examples.push_back(all);
  }
  return absl::OkStatus();
}

// Drops the units that have neither a loss nor an example.
void DropMasked(const std::vector<int64_t>& unmasked, UnitLosses& result) {
  size_t kept = 0;
  for (size_t unit = 0; unit < unmasked.size(); ++unit) {
    const bool has_examples = !result.examples.empty() && result.examples[unit] > 0;
    if (unmasked[unit] == 0 && !has_examples) continue;
    for (std::vector<double>* values :
         {&result.sum, &result.weight, &result.correct, &result.examples}) {
      if (!values->empty()) (*values)[kept] = (*values)[unit];
    }
    ++kept;
  }
  for (std::vector<double>* values :
       {&result.sum, &result.weight, &result.correct, &result.examples}) {
    if (!values->empty()) values->resize(kept);
  }
}

}  // namespace

absl::Status CheckLosses(const LossValues& losses, const Batch& batch) {
  const at::Tensor& raw = losses.values;
  if (!raw.defined() || !at::isFloatingType(raw.scalar_type())) {
    return absl::FailedPreconditionError(
        StrCat("losses returned values of type ",
               raw.defined() ? c10::toString(raw.scalar_type()) : "undefined",
               "; they must be floating-point"));
  }
  if (raw.dim() > 2 || raw.numel() == 0) {
    return absl::FailedPreconditionError(
        StrCat("losses returned values of shape ", ShapeText(raw),
               "; expected a scalar, [sequences] or [sequences, time]"));
  }
  if (raw.dim() > 0 && !batch.empty() && batch[0].defined() && batch[0].dim() > 0 &&
      raw.size(0) != batch[0].size(0)) {
    return absl::FailedPreconditionError(StrCat("losses returned values of shape ", ShapeText(raw),
                                                " for a batch of ", batch[0].size(0),
                                                " sequences; dimension 0 must be the sequence"));
  }
  if (losses.weights.defined() && losses.weights.sizes() != raw.sizes()) {
    return absl::FailedPreconditionError(StrCat("losses returned weights of shape ",
                                                ShapeText(losses.weights), " for values of shape ",
                                                ShapeText(raw)));
  }
  return absl::OkStatus();
}

absl::StatusOr<UnitLosses> SumByUnit(const LossValues& losses, const Batch& batch) {
  at::NoGradGuard no_grad;
  PTQWATCH_RETURN_IF_ERROR(CheckLosses(losses, batch));
  const at::Tensor& raw = losses.values;
  const auto on_host = at::TensorOptions().dtype(at::kDouble).device(at::kCPU);
  const int64_t units = raw.dim() == 0 ? 1 : raw.size(0);
  const int64_t time = raw.numel() / units;
  const at::Tensor values = raw.to(on_host).contiguous();
  const at::Tensor weights =
      losses.weights.defined() ? losses.weights.to(on_host).contiguous() : at::Tensor();
  const double* value = values.const_data_ptr<double>();
  const double* weight = weights.defined() ? weights.const_data_ptr<double>() : nullptr;

  UnitLosses result;
  result.sum.resize(static_cast<size_t>(units));
  result.weight.resize(static_cast<size_t>(units));
  std::vector<int64_t> unmasked(static_cast<size_t>(units));
  for (int64_t unit = 0; unit < units; ++unit) {
    double sum = 0;
    double total = 0;
    for (int64_t t = 0; t < time; ++t, ++value) {
      const double w = weight != nullptr ? *weight++ : 1.0;
      if (w == 0) continue;  // a masked loss may be NaN
      sum += w * *value;
      total += w;
      ++unmasked[static_cast<size_t>(unit)];
    }
    result.tokens += unmasked[static_cast<size_t>(unit)];
    result.sum[static_cast<size_t>(unit)] = sum;
    result.weight[static_cast<size_t>(unit)] = total;
  }
  if (raw.dim() < 2) result.tokens = TokensOf(batch);
  if (losses.correct.defined()) PTQWATCH_RETURN_IF_ERROR(AddExamples(losses, result));
  DropMasked(unmasked, result);
  return result;
}

double TotalWeight(const LossValues& losses) {
  at::NoGradGuard no_grad;
  if (!losses.weights.defined()) return static_cast<double>(losses.values.numel());
  return losses.weights.to(at::kDouble).sum().item<double>();
}

}  // namespace ptqwatch::internal
