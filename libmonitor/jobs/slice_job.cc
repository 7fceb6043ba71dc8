#include "jobs/slice_job.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_join.h"
#include "base/atomic_file.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "jobs/replica_slice.h"

namespace ptqwatch::internal {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, 0600));
  PTQWATCH_RETURN_IF_ERROR(file.Append(text));
  return file.Commit();
}

std::string QuantizerOf(const MakeSlice& request) { return ShortName(KeyOf(request)); }

absl::StatusOr<SliceStatus> CheckSlice(const std::vector<QuantizerSpec>& quantizers,
                                       const MakeSlice& request) {
  if (request.points < kMinSlicePoints || request.points > kMaxSlicePoints) {
    return absl::InvalidArgumentError(StrCat("points = ", request.points, ": must be from ",
                                             kMinSlicePoints, " to ", kMaxSlicePoints));
  }
  const bool known = std::any_of(quantizers.begin(), quantizers.end(),
                                 [&](const auto& spec) { return KeyOf(spec) == KeyOf(request); });
  if (known) return SliceStatus{.state = SliceState::kWaitingForFirst, .request = request};
  const std::string all = absl::StrJoin(quantizers, ", ", [](std::string* out, const auto& spec) {
    out->append(StrCat(ToString(spec.method), " ", spec.bits));
    if (FormatOf(spec) != FormatOf(spec.method)) out->append(StrCat(" ", FormatOf(spec)));
  });
  return absl::InvalidArgumentError(StrCat(
      "method = '", ToString(request.method), "', bits = ", request.bits,
      request.format ? StrCat(", format = '", *request.format, "'") : "", ": this run has ", all));
}

}  // namespace

SliceJob::SliceJob(ModelSession& session, const SliceJobOptions& options, SliceTracker& tracker)
    : session_(session),
      tracker_(tracker),
      run_dir_(options.run_dir),
      quantization_(options.quantization) {
  if (run_dir_.empty()) {
    tracker_.Close("MonitorOptions.run_dir is empty, so there is no place for its file");
  } else if (!options.curvature) {
    tracker_.Close(
        "it is measured on the curvature batches, and MonitorOptions.curvature.enabled is false");
  } else {
    tracker_.Open([quantizers = quantization_.quantizers](const MakeSlice& request) {
      return CheckSlice(quantizers, request);
    });
  }
}

JobStatus SliceJob::Status() const {
  return {.work = second_ ? JobStatus::Work::kNow : JobStatus::Work::kNone,
          .wants_quantized_weights = tracker_.status().under_way()};
}

void SliceJob::Abandon(const std::string& reason) {
  Forget();
  tracker_.Fail(reason);
}

void SliceJob::Close(const std::string& reason) {
  Forget();
  tracker_.Close(reason);
}

void SliceJob::Begin(const JobInput& input, const ExecutionContext& context) {
  const SnapshotPlace& place = input.place;
  const SliceStatus status = tracker_.status();
  if (!status.under_way() || place.ordinal <= tracker_.snapshots_taken()) return Forget();
  const MakeSlice& request = status.request;
  const bool too_early = place.step < request.at_step.value_or(INT64_MIN);
  auto* quantization = FindResult<QuantizationResult>(input.results);
  if (quantization == nullptr || quantization->status != ProbeStatus::kOk) {
    // A later snapshot can still be the first one.
    if (too_early) return;
    return Fail(absl::FailedPreconditionError(StrCat(
                    "the snapshot of step ", place.step,
                    " was not measured: ", quantization == nullptr ? "" : quantization->detail)),
                place.step, input.callbacks);
  }
  if (previous_.empty() || too_early) {
    const absl::Status kept = Guard([&] { return KeepWeights(place.step, context); });
    if (!kept.ok()) return Fail(kept, place.step, input.callbacks);
    tracker_.Update([](SliceStatus& slice) { slice.state = SliceState::kWaitingForSecond; });
    return;
  }
  input.callbacks.announce(
      Event::Kind::kSlice, Severity::kInfo, place.step,
      StrCat("slice through steps ", previous_step_, " and ", place.step, " and ",
             QuantizerOf(request), ": measuring ", request.points, " x ", request.points));
  tracker_.Update([](SliceStatus& slice) {
    slice.state = SliceState::kMeasuring;
    slice.points_all = SlicePoints(slice.request.points);
  });
  absl::StatusOr<Second> second = Guard([&] { return TakeSecond(place, *quantization, context); });
  if (!second.ok()) return Fail(second.status(), place.step, input.callbacks);
  second_ = *std::move(second);
}

absl::Status SliceJob::KeepWeights(int64_t step, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Forget();
  held_.emplace(context.bytes);
  for (int entry : FloatingParameters(session_.replica().table())) {
    const at::Tensor loaded = session_.replica().loaded(entry);
    PTQWATCH_RETURN_IF_ERROR(
        held_->Take(static_cast<int64_t>(loaded.nbytes()), "the first weights of a slice"));
    previous_.push_back({entry, loaded.clone()});
  }
  previous_step_ = step;
  return absl::OkStatus();
}

absl::StatusOr<SliceJob::Second> SliceJob::TakeSecond(const SnapshotPlace& place,
                                                      QuantizationResult& quantization,
                                                      const ExecutionContext& context) {
  const MakeSlice request = tracker_.status().request;
  QuantizedWeights weights = std::exchange(quantization.weights, {});
  size_t chosen = 0;
  while (chosen < quantization.quantizers.size() &&
         !SameQuantizer(quantization.quantizers[chosen], request)) {
    ++chosen;
  }
  if (chosen >= weights.size()) {
    return absl::FailedPreconditionError(
        StrCat("there are no quantized weights of step ", place.step));
  }
  std::vector<Replica::Override> quantized = std::move(weights[chosen]);
  std::shared_ptr<Reservation> held;
  QuantizationReport report = quantization.quantizers[chosen];
  if (report.status == ProbeStatus::kOtherRank) {
    QuantizationResult here = Quantize(place, chosen, context);
    quantized = std::move(here.weights[0]);
    held = std::move(here.held);
    report = std::move(here.quantizers[0]);
  }
  if (quantized.empty()) {
    return absl::FailedPreconditionError(
        StrCat("there are no quantized weights of step ", place.step, ": ", report.status_detail));
  }
  return Second{.place = place,
                .group_size = report.group_size,
                .quantized = std::move(quantized),
                .held = std::move(held)};
}

QuantizationResult SliceJob::Quantize(const SnapshotPlace& place, size_t quantizer,
                                      const ExecutionContext& context) const {
  static const OptimizerState no_optimizer;
  static const ProbeState cold;
  QuantizationOptions options = quantization_;
  options.quantizers = {options.quantizers[quantizer]};
  std::map<std::string, double> ignored;
  return QuantizationMeasurement(session_, std::move(options))
      .Measure({.place = place, .optimizer = no_optimizer, .state = cold}, ignored, context);
}

void SliceJob::Advance(absl::FunctionRef<bool()> /*stop*/, const JobCallbacks& callbacks,
                       const ExecutionContext& context) {
  const int64_t step = second_->place.step;
  const absl::StatusOr<std::string> path = Guard([&] { return Measure(callbacks, context); });
  if (!path.ok()) return Fail(path.status(), step, callbacks);
  Forget();
  callbacks.announce(Event::Kind::kSlice, Severity::kInfo, step,
                     StrCat("slice written to ", *path));
  tracker_.Update([&](SliceStatus& slice) {
    slice.state = SliceState::kDone;
    slice.path = *path;
  });
}

absl::StatusOr<std::string> SliceJob::Measure(const JobCallbacks& callbacks,
                                              const ExecutionContext& context) {
  const MakeSlice request = tracker_.status().request;
  const SnapshotPlace& place = second_->place;
  const auto progress = [&](int64_t done, int64_t /*all*/) {
    tracker_.Update([done](SliceStatus& slice) { slice.points_done = done; });
    callbacks.poll();
  };
  PTQWATCH_ASSIGN_OR_RETURN(
      LossSlice slice,
      MeasureReplicaSlice(session_.replica(), session_.curvature(), std::exchange(previous_, {}),
                          std::move(second_->quantized), {.points = request.points}, progress,
                          context));
  slice.run_id = place.run_id;
  slice.fingerprint = place.fingerprint;
  slice.step = place.step;
  slice.previous_step = previous_step_;
  slice.method = request.method;
  slice.bits = request.bits;
  slice.format = request.format;
  slice.group_size = second_->group_size;
  const std::string path = StrCat(run_dir_, "/slice-", place.step, ".json");
  PTQWATCH_RETURN_IF_ERROR(WriteFile(path, ToJson(slice) + "\n"));
  return path;
}

void SliceJob::Fail(const absl::Status& status, int64_t step, const JobCallbacks& callbacks) {
  Forget();
  callbacks.announce(
      Event::Kind::kSlice, Severity::kWarning, step,
      StrCat("slice through ", QuantizerOf(tracker_.status().request), " failed: ", status));
  tracker_.Fail(StrCat(status));
}

void SliceJob::Forget() {
  previous_.clear();
  held_.reset();
  second_.reset();
}

}  // namespace ptqwatch::internal
