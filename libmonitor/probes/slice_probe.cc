#include "probes/slice_probe.h"

#include <optional>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/atomic_file.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "probes/replica_slice.h"

namespace ptqwatch::internal {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  PTQWATCH_RETURN_IF_ERROR(file.Append(text));
  return file.Commit();
}

}  // namespace

SliceProbe::SliceProbe(ModelSession& session, const MonitorOptions& options, SliceTracker* tracker)
    : session_(session), tracker_(tracker), run_dir_(options.run_dir) {
  if (run_dir_.empty()) {
    Disable("MonitorOptions.run_dir is empty, so there is no place for its file");
    return;
  }
  if (!options.curvature.enabled) {
    Disable(
        "it is measured on the curvature batches, and MonitorOptions.curvature.enabled is false");
    return;
  }
  std::vector<SliceTracker::Quantizer> quantizers;
  for (const QuantizerSpec& spec : options.quantizers) {
    quantizers.push_back({spec.method, spec.bits});
  }
  tracker_->Open(std::move(quantizers));
}

void SliceProbe::Disable(std::string reason) {
  tracker_->Close(reason);
  Probe::Disable(std::move(reason));
}

ProbeResult SliceProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  return {.outcome = {std::string(kName), OutcomeOf(status), std::move(detail)},
          .value = SliceResult()};
}

ProbeResult SliceProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  ProbeResult nothing{.outcome = {std::string(kName)}, .value = SliceResult()};
  if (input.slice == nullptr || input.place.ordinal <= input.slice->snapshots_taken ||
      !tracker_->status().under_way()) {
    Forget();
    return nothing;
  }
  const MakeSlice& request = input.slice->request;
  const std::string name = ShortName(ToString(request.method), request.bits);
  const bool too_early = input.place.step < request.at_step.value_or(INT64_MIN);
  QuantizationResult* quantization = input.Earlier<QuantizationResult>();
  if (quantization == nullptr || quantization->status != ProbeStatus::kOk) {
    // What is not the second snapshot yet can be another one.
    if (too_early) return nothing;
    return Made(absl::FailedPreconditionError(StrCat(
                    "the snapshot of step ", input.place.step,
                    " was not measured: ", quantization == nullptr ? "" : quantization->detail)),
                name, input);
  }
  if (previous_.empty() || too_early) {
    const absl::Status kept = Guard([&] { return KeepWeights(input.place.step, context); });
    if (!kept.ok()) return Made(kept, name, input);
    tracker_->KeptFirst();
    return nothing;
  }
  input.callbacks.announce(
      Event::Kind::kSlice, Severity::kInfo,
      StrCat("slice through steps ", previous_step_, " and ", input.place.step, " and ", name,
             ": measuring ", request.points, " x ", request.points));
  tracker_->Progress(0, SlicePoints(request.points));
  return Made(Guard([&] { return Make(input, *quantization, context); }), name, input);
}

ProbeResult SliceProbe::Made(const absl::StatusOr<std::string>& path, const std::string& quantizer,
                             const ProbeInput& input) {
  Forget();
  if (path.ok()) {
    input.callbacks.announce(Event::Kind::kSlice, Severity::kInfo,
                             StrCat("slice written to ", *path));
    tracker_->Done(*path);
    return {.outcome = {std::string(kName)}, .value = SliceResult{*path}};
  }
  input.callbacks.announce(Event::Kind::kSlice, Severity::kWarning,
                           StrCat("slice through ", quantizer, " failed: ", path.status()));
  tracker_->Fail(StrCat(path.status()));
  return NotMeasured(ProbeStatusOf(path.status()), StrCat(path.status()));
}

absl::Status SliceProbe::KeepWeights(int64_t step, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Forget();
  held_.emplace(context.bytes);
  for (int entry : FloatingParameters(session_.replica())) {
    const at::Tensor loaded = session_.replica().loaded(entry);
    PTQWATCH_RETURN_IF_ERROR(
        held_->Take(static_cast<int64_t>(loaded.nbytes()), "the first weights of a slice"));
    previous_.push_back({entry, loaded.clone()});
  }
  previous_step_ = step;
  return absl::OkStatus();
}

void SliceProbe::Forget() {
  previous_.clear();
  held_.reset();
}

absl::StatusOr<std::string> SliceProbe::Make(const ProbeInput& input,
                                             QuantizationResult& quantization,
                                             const ExecutionContext& context) {
  const MakeSlice& request = input.slice->request;
  QuantizedWeights weights = std::exchange(quantization.weights, {});
  size_t chosen = 0;
  while (chosen < quantization.quantizers.size() &&
         (quantization.quantizers[chosen].method != request.method ||
          quantization.quantizers[chosen].bits != request.bits)) {
    ++chosen;
  }
  if (chosen >= weights.size() || weights[chosen].empty()) {
    return absl::FailedPreconditionError(
        StrCat("there are no quantized weights of step ", input.place.step,
               chosen < quantization.quantizers.size()
                   ? StrCat(": ", quantization.quantizers[chosen].status_detail)
                   : ""));
  }
  std::vector<Replica::Override> quantized = std::move(weights[chosen]);
  weights.clear();

  PTQWATCH_ASSIGN_OR_RETURN(
      LossSlice slice, MeasureReplicaSlice(
                           session_.replica(), session_.curvature(), std::exchange(previous_, {}),
                           std::move(quantized), {.points = request.points},
                           [&](int64_t done, int64_t all) {
                             tracker_->Progress(done, all);
                             input.callbacks.poll();
                           },
                           context));
  slice.run_id = input.place.run_id;
  slice.fingerprint = input.place.fingerprint;
  slice.step = input.place.step;
  slice.previous_step = previous_step_;
  slice.method = request.method;
  slice.bits = request.bits;
  slice.group_size = quantization.quantizers[chosen].group_size;
  const std::string path = StrCat(run_dir_, "/slice-", input.place.step, ".json");
  PTQWATCH_RETURN_IF_ERROR(WriteFile(path, ToJson(slice) + "\n"));
  return path;
}

}  // namespace ptqwatch::internal
