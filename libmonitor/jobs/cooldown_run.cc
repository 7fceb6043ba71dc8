#include "jobs/cooldown_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "absl/cleanup/cleanup.h"
#include "base/guard.h"
#include "base/longest_time.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "snapshot/memory_meter.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {
namespace {

// Copies of the parameters: the starting point and the current weights.
constexpr int64_t kHeldCopies = 2;
// Estimate until the first training step is measured: gradients, two moments, and activations kept
// for the backward pass.
constexpr int64_t kStepCopies = 3;
constexpr int64_t kStepForwards = 3;

// Random draws that depend only on the step.
class StepDraws final : public OwnDraws {
 public:
  explicit StepDraws(int64_t step) : seed_(static_cast<uint64_t>(step)) {}

 private:
  at::Generator On(at::Device device) override {
    at::Generator generator = OwnDraws::On(device);
    if (generator.defined() && !std::exchange(seeded_, true)) generator.set_current_seed(seed_);
    return generator;
  }
  const uint64_t seed_;
  bool seeded_ = false;
};

// Drops gradients that the closure left, so that later measurements neither add to them nor hold
// them.
void DropGradients(const Replica& replica, const std::vector<int>& trained) {
  for (const int entry : trained) {
    for (const at::Tensor& leaf : replica.leaves(entry)) {
      if (leaf.is_leaf()) leaf.mutable_grad() = at::Tensor();
    }
  }
}

SimulatedDecay EndOf(const QuantizationResult& found) {
  SimulatedDecay end;
  end.status = found.status;
  end.status_detail = found.detail;
  end.loss_nats = found.loss_nats;
  for (const QuantizationReport& report : found.quantizers) {
    SimulatedError& error = end.quantization.emplace_back();
    error.method = report.method;
    error.bits = report.bits;
    error.format = report.format;
    if (report.status != ProbeStatus::kOk) continue;
    error.error_ratio = report.error_ratio;
    error.error_ratio_stderr = report.error_ratio_stderr;
  }
  return end;
}

}  // namespace

CooldownRun::CooldownRun(const Parts& parts, const SnapshotPlace& place,
                         const ExecutionContext& context)
    : parts_(parts),
      place_(place),
      deadline_(parts.options.max_time.count() > 0
                    ? context.clock->Monotonic() + AtMostAYear(parts.options.max_time)
                    : std::chrono::nanoseconds::max()),
      held_(context.bytes) {}

absl::StatusOr<std::unique_ptr<CooldownRun>> CooldownRun::Begin(const Parts& parts,
                                                                const SnapshotPlace& place,
                                                                int64_t decay_steps,
                                                                const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  if (!place.learning_rate || !(*place.learning_rate > 0) || !std::isfinite(*place.learning_rate)) {
    return absl::FailedPreconditionError(
        StrCat("the learning rate of step ", place.step, " is ",
               place.learning_rate ? StrCat(*place.learning_rate) : "unknown",
               ", so there is nothing to decay"));
  }
  std::unique_ptr<CooldownRun> run(new CooldownRun(parts, place, context));
  run->decays_ = PlanDecays(parts.options, decay_steps);
  for (const DecayPlan& decay : run->decays_) run->steps_all_ += decay.settle_steps + decay.steps;
  run->result_.step = place.step;
  run->result_.learning_rate = *place.learning_rate;
  run->result_.shape = parts.options.shape;
  run->result_.decay_steps = decay_steps;
  PTQWATCH_RETURN_IF_ERROR(run->TakeMemory());
  return Guard([&]() -> absl::StatusOr<std::unique_ptr<CooldownRun>> {
    const Replica& replica = parts.session.replica();
    // Includes buffers, because training may change them.
    for (size_t i = 0; i < replica.table().entries.size(); ++i) {
      const int entry = static_cast<int>(i);
      run->start_.push_back({entry, replica.loaded(entry).clone()});
    }
    return std::move(run);
  });
}

absl::Status CooldownRun::TakeMemory() {
  const Replica& replica = parts_.session.replica();
  const int64_t weights = replica.table().bytes();
  step_bytes_ = kStepCopies * weights + kStepForwards * replica.forward_bytes();
  PTQWATCH_RETURN_IF_ERROR(held_.Take(kHeldCopies * weights, "the weights of a shadow cooldown"));
  return held_.Take(step_bytes_, "training steps of a shadow cooldown");
}

CooldownRun::Weights CooldownRun::Copy(const Weights& weights) const {
  Weights copies;
  for (const Replica::Override& weight : weights) {
    copies.push_back({weight.entry, weight.value.clone()});
  }
  return copies;
}

absl::StatusOr<bool> CooldownRun::Advance(absl::FunctionRef<bool()> stop,
                                          const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  const ExecutionContext limited = context.WithDeadline(std::min(deadline_, context.deadline));
  while (at_ < decays_.size()) {
    const WorkStopwatch watch(context);
    const absl::StatusOr<bool> ended = Guard([&]() -> absl::StatusOr<bool> {
      PTQWATCH_ASSIGN_OR_RETURN(const bool trained, Train(stop, limited));
      if (trained) PTQWATCH_RETURN_IF_ERROR(MeasureEnd(limited));
      return trained;
    });
    const double seconds = watch.seconds();
    seconds_ += seconds;
    result_.seconds += seconds;
    if (!ended.ok() || !*ended) return ended;
    result_.decays.back().seconds = std::exchange(seconds_, 0);
    ++at_;
    index_ = 0;
  }
  return true;
}

absl::StatusOr<bool> CooldownRun::Train(absl::FunctionRef<bool()> stop,
                                        const ExecutionContext& context) {
  Replica& replica = parts_.session.replica();
  if (now_.empty()) now_ = Copy(start_);
  PTQWATCH_ASSIGN_OR_RETURN(Replica::Lease lease, replica.Use(now_));
  replica.SetDifferentiable(parts_.trained);
  const absl::Cleanup drop = [&] { DropGradients(replica, parts_.trained); };
  const int64_t steps = decay().settle_steps + decay().steps;
  while (index_ < steps && !stop()) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_RETURN_IF_ERROR(TrainOneStep(context));
    ++index_;
    ++result_.simulated_steps;
  }
  for (Replica::Override& weight : now_) {
    weight.value.copy_(replica.table().entries[static_cast<size_t>(weight.entry)].tensor);
  }
  return index_ == steps;
}

absl::Status CooldownRun::TrainOneStep(const ExecutionContext& context) {
  CooldownStep step;
  step.index = index_;
  step.steps = decay().settle_steps + decay().steps;
  step.learning_rate =
      SimulatedRate(parts_.options, decay(), *place_.learning_rate, index_ - decay().settle_steps);
  const uint64_t first = context.seeds.Seed(StrCat("cooldown.", place_.step), at_);
  step.batch = static_cast<int64_t>(first >> 2) + index_;
  const StepDraws draws(step.batch);
  const MemoryMeter meter;
  PTQWATCH_RETURN_IF_ERROR(
      Guard("train_step", absl::StatusCode::kFailedPrecondition, [&]() -> absl::Status {
        at::AutoGradMode with_gradients(true);
        parts_.session.subject().TrainReplica(step);
        return absl::OkStatus();
      }));
  if (meter.peak() <= step_bytes_) return absl::OkStatus();
  PTQWATCH_RETURN_IF_ERROR(
      held_.Take(meter.peak() - step_bytes_, "training steps of a shadow cooldown"));
  step_bytes_ = meter.peak();
  return absl::OkStatus();
}

absl::Status CooldownRun::MeasureEnd(const ExecutionContext& context) {
  static const OptimizerState no_optimizer;
  static const ProbeState cold;
  PTQWATCH_ASSIGN_OR_RETURN(const Replica::StandIn stand_in,
                            parts_.session.replica().Replace(std::exchange(now_, {})));
  const ProbeInput input{
      .place = place_, .optimizer = no_optimizer, .state = cold, .keep_quantized = false};
  std::map<std::string, double> ignored;
  SimulatedDecay end = EndOf(parts_.measurement.Measure(input, ignored, context));
  PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  end.steps = decay().steps;
  end.settle_steps = decay().settle_steps;
  const bool due = !place_.plan || place_.plan->curvature_sequences > 0;
  if (due && parts_.curvature != nullptr && parts_.curvature->disabled().empty() &&
      end.status == ProbeStatus::kOk) {
    const ProbeResult curvature = parts_.curvature->Measure(input, context);
    const CurvatureReport& report = std::get<CurvatureResult>(curvature.value).report;
    end.trace = report.trace;
    end.top_eigenvalue = report.top_eigenvalue;
    if (report.status != ProbeStatus::kOk) {
      end.status_detail = StrCat("curvature: ", report.status_detail);
    }
  }
  result_.decays.push_back(std::move(end));
  return absl::OkStatus();
}

PredictedEnd CooldownRun::Result(const absl::Status& status) const {
  PredictedEnd end = result_;
  end.status = ProbeStatusOf(status);
  if (absl::IsDeadlineExceeded(status)) {
    end.status_detail =
        StrCat("max_time was over after ", end.decays.size(), " of ", decays_.size(), " lengths");
  } else if (!status.ok()) {
    end.status_detail = StrCat(status);
  }
  if (status.ok() && std::none_of(end.decays.begin(), end.decays.end(), [](const auto& decay) {
        return decay.status == ProbeStatus::kOk;
      })) {
    end.status = end.decays.back().status;
    end.status_detail = end.decays.back().status_detail;
  }
  PredictEnd(end);
  return end;
}

}  // namespace ptqwatch::internal
