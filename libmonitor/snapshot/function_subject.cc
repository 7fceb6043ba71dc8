#include "ptqwatch/function_subject.h"

#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "ATen/ops/zeros.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch {
namespace {

using internal::StrCat;

/// For example "FunctionSubjectOptions.live[2] ('w1')".
std::string Entry(size_t i, const std::string& name) {
  return StrCat("FunctionSubjectOptions.live[", i, "]",
                name.empty() ? "" : StrCat(" ('", name, "')"));
}

/// Rejects entries, such as undefined tensors, that MakeTensorTable accepts for modules.
absl::Status Check(const std::vector<NamedTensor>& live) {
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < live.size(); ++i) {
    const std::string& name = live[i].name;
    const at::Tensor& tensor = live[i].tensor;
    const std::string entry = Entry(i, name);
    if (name.empty()) return absl::InvalidArgumentError(StrCat(entry, " has an empty name"));
    if (!tensor.defined()) return absl::InvalidArgumentError(StrCat(entry, " is undefined"));
    if (const auto [same, inserted] = first.emplace(name, i); !inserted) {
      return absl::InvalidArgumentError(StrCat("FunctionSubjectOptions.live[", same->second,
                                               "] and live[", i, "] are both named '", name, "'"));
    }
    if (live[i].is_parameter && !at::isFloatingType(tensor.scalar_type())) {
      return absl::InvalidArgumentError(
          StrCat(entry, " is a parameter of type ", at::toString(tensor.scalar_type()),
                 "; a parameter must be floating-point, anything else a buffer"));
    }
  }
  return absl::OkStatus();
}

class FunctionSubject final : public Subject {
 public:
  explicit FunctionSubject(FunctionSubjectOptions options) : options_(std::move(options)) {
    if (options_.calibration.empty()) options_.calibration = options_.probe;
  }

  std::vector<NamedTensor> LiveTensors() const override { return options_.live; }
  std::optional<c10::Stream> UpdateStream() const override { return options_.stream; }
  std::optional<OptimizerView> Optimizer() const override {
    return options_.optimizer ? options_.optimizer() : std::nullopt;
  }

  absl::Status BuildReplica() override {
    if (!replica_.empty()) return absl::OkStatus();
    PTQWATCH_RETURN_IF_ERROR(Check(options_.live));
    if (!options_.losses) {
      return absl::InvalidArgumentError("FunctionSubjectOptions.losses is not set");
    }
    PTQWATCH_ASSIGN_OR_RETURN(const internal::TensorTable table,
                              internal::MakeTensorTable(options_.live, internal::Parts::kAllowed));
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> copies(table.entries.size());
    for (size_t i = 0; i < options_.live.size(); ++i) {
      const NamedTensor& named = options_.live[i];
      const auto entry = static_cast<size_t>(table.index[i]);
      at::Tensor& copy = copies[entry];
      if (!copy.defined()) {
        // A clone has the strides of its dense original.
        const bool is_whole = named.global_shape.empty() && named.offset.empty();
        copy = is_whole ? named.tensor.detach().clone()
                        : at::zeros(named.global_shape, named.tensor.options());
        copy.set_requires_grad(table.entries[entry].is_parameter);
      }
      replica_.push_back({named.name, copy, named.is_parameter});
      by_name_.emplace(named.name, copy);
    }
    return absl::OkStatus();
  }

  std::vector<NamedTensor> ReplicaTensors() const override { return replica_; }
  LossValues ReplicaLosses(const Batch& batch) override { return options_.losses(by_name_, batch); }
  bool CanTrainReplica() const override { return options_.train_step != nullptr; }
  void TrainReplica(const CooldownStep& step) override { options_.train_step(by_name_, step); }
  const std::vector<Batch>& probe() const override { return options_.probe; }
  const std::vector<Batch>& calibration() const override { return options_.calibration; }
  const std::vector<Batch>& curvature() const override { return options_.curvature; }

 private:
  FunctionSubjectOptions options_;
  std::vector<NamedTensor> replica_;
  TensorMap by_name_;  // the same handles; the monitor replaces their memory
};

}  // namespace

const at::Tensor& TensorMap::at(std::string_view name) const {
  if (const auto found = find(name); found != end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& item : *this) names.push_back(item.first);
  const std::string_view nearest = internal::NearestName(name, names);
  throw std::out_of_range(StrCat("no tensor is named '", name, "'",
                                 names.empty() ? "" : StrCat("; the nearest is '", nearest, "'")));
}

std::unique_ptr<Subject> MakeFunctionSubject(FunctionSubjectOptions options) {
  return std::make_unique<FunctionSubject>(std::move(options));
}

}  // namespace ptqwatch
