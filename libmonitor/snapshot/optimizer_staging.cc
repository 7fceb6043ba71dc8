#include "snapshot/optimizer_staging.h"

#include <cmath>
#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

bool HasSecondMoments(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

absl::Status CheckRange(std::string_view name, double value, double below) {
  if (value >= 0 && value < below) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("the optimizer's ", name, " = ", value, " is not in [0, ", below, ")"));
}

absl::Status CheckRule(const OptimizerView& view) {
  constexpr double kMaxEpsilon = 1e300;
  if (!HasSecondMoments(view.kind)) {
    PTQWATCH_RETURN_IF_ERROR(CheckRange("momentum", view.momentum, 1));
    return CheckRange("dampening", view.dampening, 1);
  }
  PTQWATCH_RETURN_IF_ERROR(CheckRange("beta1", view.beta1, 1));
  PTQWATCH_RETURN_IF_ERROR(CheckRange("beta2", view.beta2, 1));
  return CheckRange("epsilon", view.epsilon, kMaxEpsilon);
}

// Exceptions become a status.
absl::StatusOr<std::optional<OptimizerView>> Ask(const OptimizerStaging::Read& read) {
  return Guard("the optimizer function threw", absl::StatusCode::kFailedPrecondition,
               [&]() -> absl::StatusOr<std::optional<OptimizerView>> { return read(); });
}

}  // namespace

absl::StatusOr<OptimizerStaging> OptimizerStaging::Create(Read read, const TensorTable& live,
                                                          const std::vector<int>& entries,
                                                          std::shared_ptr<ByteBudget> bytes,
                                                          std::shared_ptr<ByteBudget> copies,
                                                          const MakeBuffer& make) {
  at::NoGradGuard no_grad;
  OptimizerStaging staging;
  staging.held_ = std::make_unique<Reservation>(std::move(bytes));
  staging.copied_ = std::make_unique<Reservation>(std::move(copies));
  PTQWATCH_ASSIGN_OR_RETURN(const std::optional<OptimizerView> view, Ask(read));
  staging.read_ = std::move(read);
  for (const TensorEntry& entry : live.entries) {
    staging.parameters_.push_back(
        {entry.name, entry.tensor.sizes().vec(), entry.tensor.device(), false, at::Tensor()});
  }
  for (size_t i = 0; i < live.names.size(); ++i) staging.entry_[live.names[i]] = live.index[i];
  for (int entry : entries) staging.parameters_[static_cast<size_t>(entry)].wanted = true;
  if (!view) return staging;
  PTQWATCH_RETURN_IF_ERROR(staging.Check(*view));

  staging.description_ = std::string(ToString(view->kind));
  if (!HasSecondMoments(view->kind)) return staging;
  int64_t elements = 0;
  for (const OptimizedParameter& listed : view->parameters) {
    const auto entry = static_cast<size_t>(staging.entry_.find(listed.name)->second);
    Parameter& parameter = staging.parameters_[entry];
    if (!parameter.wanted || parameter.buffer.defined()) continue;
    // The second moment is undefined before the first update. LibTorch later allocates it in the
    // parameter's dtype.
    const at::ScalarType type = listed.second_moment.defined()
                                    ? listed.second_moment.scalar_type()
                                    : OriginalType(live, live.entries[entry]);
    // One buffer is for staging, a second one for the copy while a snapshot is measured.
    constexpr std::string_view kWhat = "the optimizer's moments";
    const int64_t size =
        live.entries[entry].tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
    absl::Status fits = staging.held_->Take(size, kWhat);
    if (fits.ok()) fits = staging.copied_->Take(size, kWhat);
    if (!fits.ok()) return staging.LeaveOut(fits);
    parameter.buffer =
        make ? make(entry, type, size)
             : at::zeros(parameter.sizes, at::TensorOptions().dtype(type).device(parameter.device));
    elements += parameter.buffer.numel();
    staging.bytes_ += static_cast<int64_t>(parameter.buffer.nbytes());
  }
  staging.description_ += StrCat(", second moments of ", elements, " parameters");
  return staging;
}

OptimizerStaging OptimizerStaging::LeaveOut(const absl::Status& why) const {
  OptimizerStaging nothing;
  nothing.description_ = StrCat(description_, ", left out: ", why);
  nothing.left_out_ = StrCat(why);
  return nothing;
}

absl::Status OptimizerStaging::Check(const OptimizerView& view) const {
  PTQWATCH_RETURN_IF_ERROR(CheckRule(view));
  for (const OptimizedParameter& listed : view.parameters) {
    const auto found = entry_.find(listed.name);
    if (found == entry_.end()) {
      return absl::InvalidArgumentError(
          StrCat("the optimizer's parameter '", listed.name, "' is not one of the model's"));
    }
    const at::Tensor& moment = listed.second_moment;
    const Parameter& parameter = parameters_[static_cast<size_t>(found->second)];
    if (!moment.defined()) continue;
    if (!HasMemory(moment)) {
      return absl::FailedPreconditionError(StrCat("the optimizer's second moment of '", listed.name,
                                                  "' has no memory, or less than it needs"));
    }
    if (moment.sizes() != parameter.sizes) {
      return absl::InvalidArgumentError(StrCat("the optimizer's second moment of '", listed.name,
                                               "' is ", ShapeText(moment),
                                               ", which is not the parameter's shape"));
    }
    if (!at::isFloatingType(moment.scalar_type()) || moment.device() != parameter.device) {
      return absl::InvalidArgumentError(StrCat("the optimizer's second moment of '", listed.name,
                                               "' is ", at::toString(moment.scalar_type()), " on ",
                                               moment.device().str(), "; floating point on ",
                                               parameter.device.str(), " is needed"));
    }
  }
  return absl::OkStatus();
}

absl::Status OptimizerStaging::CopyState(OptimizerView view, DeviceStream& stream,
                                         OptimizerState& state) const {
  PTQWATCH_RETURN_IF_ERROR(Check(view));
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  std::vector<OptimizedParameter> wanted;
  for (OptimizedParameter& listed : view.parameters) {
    const Parameter& parameter = parameters_[static_cast<size_t>(entry_.find(listed.name)->second)];
    if (!parameter.wanted) continue;
    listed.name = parameter.name;
    if (listed.second_moment.defined() && HasSecondMoments(view.kind)) {
      if (!parameter.buffer.defined()) {
        return absl::FailedPreconditionError(
            StrCat("the optimizer's '", parameter.name,
                   "' was not announced when the monitor was created: make the optimizer first"));
      }
      if (parameter.buffer.scalar_type() != listed.second_moment.scalar_type()) {
        return absl::FailedPreconditionError(StrCat(
            "the optimizer's second moment of '", parameter.name, "' is ",
            at::toString(listed.second_moment.scalar_type()), ", and the monitor was created for ",
            at::toString(parameter.buffer.scalar_type()),
            ": create it once the optimizer has its moments, after its first step"));
      }
      from.push_back(listed.second_moment);
      to.push_back(parameter.buffer);
      listed.second_moment = parameter.buffer;
    }
    // Tensors of the trainer must not reach the monitor thread.
    if (!HasSecondMoments(view.kind)) listed.second_moment.reset();
    wanted.push_back(std::move(listed));
  }
  if (!to.empty()) stream.Copy(to, from);
  view.parameters = std::move(wanted);
  state.view = std::move(view);
  return absl::OkStatus();
}

void OptimizerStaging::Fill(DeviceStream& stream, OptimizerState& state) noexcept {
  state.view.reset();
  state.problem.clear();
  state.problem = left_out_;
  if (parameters_.empty()) return;
  const absl::Status status = Guard([&]() -> absl::Status {
    PTQWATCH_ASSIGN_OR_RETURN(std::optional<OptimizerView> view, Ask(read_));
    return view ? CopyState(*std::move(view), stream, state) : absl::OkStatus();
  });
  state.problem = Message(status);
}

}  // namespace ptqwatch::internal
