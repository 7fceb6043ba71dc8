#include "probes/averaging_probe.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "quantize/working_bytes.h"
#include "report/watched_quantizer.h"
#include "snapshot/finite.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kFewestSnapshots = 2;
// Of the parameter that is being averaged: its sum and the next value, in float64.
constexpr int64_t kWorkingBytes = 16;
// What quantizing a layer reserves beside what its probe describes, with room to spare.
constexpr int64_t kUndescribedBytes = int64_t{1} << 17;

// The same options for the watched quantizer alone.
MonitorOptions OfWatched(MonitorOptions options) {
  const size_t watched = WatchedQuantizer(options.quantizers).value_or(0);
  options.quantizers = {options.quantizers.at(watched)};
  return options;
}

}  // namespace

AveragingProbe::AveragingProbe(ModelSession& session, const MonitorOptions& options,
                               const Probe* curvature, absl::Span<const ProbeDescription> others)
    : session_(session),
      options_(options.averaging),
      curvature_(curvature),
      measurement_(session, OfWatched(options)),
      entries_(FloatingParameters(session.replica().table())),
      fitting_(static_cast<size_t>(options.averaging.window)),
      window_(session.replica(), entries_) {
  int64_t largest = 0;
  for (int entry : entries_) {
    largest = std::max(largest, session.replica().loaded(entry).numel());
  }
  mean_bytes_ = window_.snapshot_bytes() + kWorkingBytes * largest;
  for (const ProbeDescription& other : others) {
    needed_bytes_ = std::max(needed_bytes_, kept_bytes_ + other.bytes);
    kept_bytes_ += other.kept_bytes;
  }
  const int64_t measuring = mean_bytes_ + measurement_.PortionFor(INT64_MAX).bytes;
  needed_bytes_ = std::max(needed_bytes_, kept_bytes_ + measuring);
  // Descriptions say what is held at a time; a layer's work reserves all that it takes.
  int64_t working = 0;
  for (const QuantizerSpec& spec : options.quantizers) {
    for (const CoveredLayer& layer : session.plan().layers) {
      working = std::max(working, WorkingBytes(layer.outputs, layer.inputs,
                                               SpecForLayer(options, spec, layer.name)));
    }
  }
  needed_bytes_ += working + kUndescribedBytes;
  if (options_.decay > 0) exponential_.emplace(session.replica(), entries_, options_.decay);
}

size_t AveragingProbe::Fitting(int64_t remaining, size_t held) const {
  int64_t fitting = static_cast<int64_t>(held);
  int64_t room = remaining - needed_bytes_;
  for (; fitting > 0 && room < 0; --fitting) room += window_.snapshot_bytes();
  for (; fitting < options_.window && room >= window_.snapshot_bytes(); ++fitting) {
    room -= window_.snapshot_bytes();
  }
  return static_cast<size_t>(fitting);
}

ProbeDescription AveragingProbe::Describe(int64_t available) const {
  if (!disabled().empty()) return {.text = StrCat("averages: off, ", disabled(), "\n")};
  // What others keep was taken off, and is in what it needs, too.
  const size_t fitting =
      Fitting(std::min(available, INT64_MAX - kept_bytes_) + kept_bytes_, window_.size());
  const int64_t exponential = exponential_ ? exponential_->bytes() : 0;
  const int64_t held = static_cast<int64_t>(fitting) * window_.snapshot_bytes() + exponential;
  std::string text = StrFormat("averages: the mean of the last %d snapshots", options_.window);
  if (options_.spacing > 1) text += StrCat(", of every ", options_.spacing, " one");
  if (exponential_) text += StrFormat("; an exponential one with decay %g", options_.decay);
  text += StrFormat("; alone and with %s; %.1f MB of weights%s\n",
                    ::ptqwatch::Describe(measurement_.options().quantizers[0]),
                    1e-6 * static_cast<double>(held),
                    fitting < static_cast<size_t>(options_.window)
                        ? StrCat(", for lack of memory of ", fitting, " snapshots")
                        : "");
  return {.text = std::move(text),
          .bytes = mean_bytes_ + measurement_.PortionFor(available).bytes,
          .always_bytes = held};
}

bool AveragingProbe::Collect(const SnapshotPlace& place, const ExecutionContext& context) {
  // A run that went back left the path that its newer weights are of.
  window_.DropFrom(place.step);
  if (exponential_) exponential_->DropFrom(place.step);
  fitting_ = Fitting(context.bytes->remaining(), window_.size());
  // What other probes measure with comes first.
  while (window_.size() > fitting_) window_.DropOldest();
  if (!place.regular || seen_++ % options_.spacing != 0) return true;
  problem_ = Guard([&] { return Take(place, context); });
  return true;
}

absl::Status AveragingProbe::Take(const SnapshotPlace& place, const ExecutionContext& context) {
  // One such value would stay in every average that it enters.
  if (!CheckFinite(session_.replica().table(), entries_).ok()) return absl::OkStatus();
  if (fitting_ > 0) {
    const absl::Status taken = window_.Add(place.step, fitting_, context.bytes);
    if (!taken.ok() && !absl::IsResourceExhausted(taken)) return taken;
  }
  if (!exponential_) return absl::OkStatus();
  if (exponential_->snapshots() == 0 &&
      context.bytes->remaining() - needed_bytes_ < exponential_->bytes()) {
    return absl::OkStatus();
  }
  const absl::Status taken = exponential_->Add(place.step, context.bytes);
  return absl::IsResourceExhausted(taken) ? absl::OkStatus() : taken;
}

AveragingReport AveragingProbe::WindowReport() const {
  AveragingReport report;
  report.kind = AveragingKind::kWindow;
  report.window = options_.window;
  report.snapshots = static_cast<int64_t>(window_.size());
  if (report.snapshots > 0) report.first_step = window_.first_step();
  return report;
}

AveragingReport AveragingProbe::ExponentialReport() const {
  AveragingReport report;
  report.kind = AveragingKind::kExponential;
  report.decay = options_.decay;
  report.snapshots = exponential_->snapshots();
  if (report.snapshots > 0) report.first_step = exponential_->first_step();
  return report;
}

ProbeResult AveragingProbe::NotMeasured(ProbeStatus status, std::string detail) const {
  AveragingReport report = WindowReport();
  report.status = status;
  report.status_detail = detail;
  ProbeResult result;
  result.outcome = {std::string(kName), OutcomeOf(status), StrCat("averaging: ", detail)};
  result.value = AveragingResult{.averages = {std::move(report)}};
  return result;
}

ProbeResult AveragingProbe::Measure(const ProbeInput& input, const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  Stopwatch watch(context.clock);
  if (!problem_.ok()) return NotMeasured(ProbeStatusOf(problem_), StrCat(problem_));
  ProbeResult measured{.outcome = {std::string(kName)}};
  AveragingResult result;
  const auto measure = [&](AveragingReport report, const auto& average) {
    if (report.snapshots < static_cast<int64_t>(kFewestSnapshots)) return;
    const absl::Status status = Guard(
        [&] { return MeasureAverage([&] { return average.Mean(); }, input, report, context); });
    if (!status.ok()) {
      report.status = ProbeStatusOf(status);
      report.status_detail = StrCat(status);
    }
    if (OutcomeOf(report.status) != ProbeOutcome::Kind::kOk) {
      measured.outcome = {std::string(kName), OutcomeOf(report.status),
                          StrCat("averaging: ", report.status_detail)};
    }
    result.averages.push_back(std::move(report));
  };
  measure(WindowReport(), window_);
  if (exponential_) measure(ExponentialReport(), *exponential_);
  if (fitting_ < static_cast<size_t>(options_.window)) NoteShortage(result.averages);
  measured.cost_seconds[std::string(kName)] = watch.Lap();
  measured.value = std::move(result);
  return measured;
}

void AveragingProbe::NoteShortage(std::vector<AveragingReport>& averages) const {
  const std::string reason =
      StrCat("max_bytes leaves room for ", fitting_, " of ", options_.window, " snapshots");
  if (fitting_ < kFewestSnapshots) {
    AveragingReport& report = *averages.insert(averages.begin(), WindowReport());
    report.status = ProbeStatus::kDisabled;
    report.status_detail = reason;
    return;
  }
  for (AveragingReport& report : averages) {
    if (report.kind == AveragingKind::kWindow && report.status == ProbeStatus::kOk) {
      report.status_detail = reason;
    }
  }
}

absl::Status AveragingProbe::MeasureAverage(
    absl::FunctionRef<std::vector<Replica::Override>()> average, const ProbeInput& input,
    AveragingReport& report, const ExecutionContext& context) const {
  Reservation held(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(mean_bytes_, "an average of the weights"));
  PTQWATCH_ASSIGN_OR_RETURN(const Replica::StandIn stand_in, session_.replica().Replace(average()));
  std::map<std::string, double> ignored;
  QuantizationResult found = measurement_.Measure({.place = input.place,
                                                   .optimizer = input.optimizer,
                                                   .state = input.state,
                                                   .poll = input.poll,
                                                   .keep_quantized = false},
                                                  ignored, context);
  report.status = found.status;
  report.status_detail = std::move(found.detail);
  report.loss_nats = found.loss_nats;
  report.loss_stderr_nats = found.loss_stderr_nats;
  report.probe_tokens = found.tokens;
  report.quantization = std::move(found.quantizers);
  return absl::OkStatus();
}

void AveragingProbe::Disable(std::string reason) {
  window_.Clear();
  if (exponential_) exponential_->Clear();
  Probe::Disable(std::move(reason));
}

}  // namespace ptqwatch::internal
