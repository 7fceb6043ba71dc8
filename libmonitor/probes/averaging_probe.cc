#include "probes/averaging_probe.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/stopwatch.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kFewestSnapshots = 2;

}  // namespace

AveragingProbe::AveragingProbe(ModelSession& session, const AveragingOptions& options,
                               const QuantizationOptions& quantization, const RecentWeights& recent)
    : Probe({.name = kName,
             .uses = {"quantization"},
             .uses_recent_weights = true,
             .with_curvature = true}),
      options_(options),
      measurement_(session, quantization, recent),
      recent_(recent) {}

ProbeNeeds AveragingProbe::Needs(int64_t available) const {
  if (!disabled().empty()) return {.text = StrCat("averages: off, ", disabled(), "\n")};
  const size_t fitting = recent_.FittingIn(available);
  const int64_t exponential = recent_.exponential() ? recent_.exponential()->bytes() : 0;
  const int64_t held =
      static_cast<int64_t>(fitting) * recent_.window().snapshot_bytes() + exponential;
  std::string text = StrFormat("averages: the mean of the last %d snapshots", options_.window);
  if (options_.spacing > 1) text += StrCat(", of every ", options_.spacing, " one");
  if (exponential > 0) text += StrFormat("; an exponential one with decay %g", options_.decay);
  text += StrFormat("; alone and with %s; %.1f MB of weights%s\n", measurement_.Quantizers(),
                    1e-6 * static_cast<double>(held),
                    fitting < static_cast<size_t>(options_.window)
                        ? StrCat(", for lack of memory of ", fitting, " snapshots")
                        : "");
  return {.text = std::move(text), .bytes = measurement_.Bytes(available), .always_bytes = held};
}

AveragingReport AveragingProbe::WindowReport() const {
  AveragingReport report;
  report.kind = AveragingKind::kWindow;
  report.window = options_.window;
  report.snapshots = static_cast<int64_t>(recent_.window().size());
  if (report.snapshots > 0) report.first_step = recent_.window().first_step();
  return report;
}

AveragingReport AveragingProbe::ExponentialReport() const {
  AveragingReport report;
  report.kind = AveragingKind::kExponential;
  report.decay = options_.decay;
  report.snapshots = recent_.exponential()->snapshots();
  if (report.snapshots > 0) report.first_step = recent_.exponential()->first_step();
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
  if (!recent_.problem().ok())
    return NotMeasured(ProbeStatusOf(recent_.problem()), StrCat(recent_.problem()));
  ProbeResult measured{.outcome = {std::string(kName)}};
  AveragingResult result;
  const auto measure = [&](AveragingReport report, const auto& average) {
    if (report.snapshots < static_cast<int64_t>(kFewestSnapshots)) return;
    if (result.own.full.empty()) result.own = measurement_.Own(input, context);
    measurement_.Measure([&] { return average.Mean(); }, result.own, input, report, context);
    if (OutcomeOf(report.status) != ProbeOutcome::Kind::kOk) {
      measured.outcome = {std::string(kName), OutcomeOf(report.status),
                          StrCat("averaging: ", report.status_detail)};
    }
    result.averages.push_back(std::move(report));
  };
  measure(WindowReport(), recent_.window());
  if (recent_.exponential()) measure(ExponentialReport(), *recent_.exponential());
  if (recent_.fitting() < static_cast<size_t>(options_.window)) NoteShortage(result.averages);
  measured.cost_seconds[std::string(kName)] = watch.Lap();
  measured.value = std::move(result);
  return measured;
}

void AveragingProbe::NoteShortage(std::vector<AveragingReport>& averages) const {
  const std::string reason = StrCat("max_bytes leaves room for ", recent_.fitting(), " of ",
                                    options_.window, " snapshots");
  if (recent_.fitting() < kFewestSnapshots) {
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

}  // namespace ptqwatch::internal
