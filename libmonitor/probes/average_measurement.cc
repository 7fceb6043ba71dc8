#include "probes/average_measurement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

// Bytes per element of the parameter being averaged: its sum and the next value, in float64.
constexpr int64_t kWorkingBytes = 16;

// The same options for the watched quantizer alone.
QuantizationOptions OfWatched(QuantizationOptions options) {
  const size_t watched = WatchedQuantizer(options.quantizers).value_or(0);
  options.quantizers = {options.quantizers.at(watched)};
  options.owners.clear();
  return options;
}

}  // namespace

AverageMeasurement::AverageMeasurement(ModelSession& session,
                                       const QuantizationOptions& quantization,
                                       const RecentWeights& recent)
    : session_(session), measurement_(session, OfWatched(quantization)) {
  int64_t largest = 0;
  for (int entry : recent.entries()) {
    largest = std::max(largest, session.replica().loaded(entry).numel());
  }
  average_bytes_ = recent.window().snapshot_bytes() + kWorkingBytes * largest;
}

std::string AverageMeasurement::Watched() const {
  return ::ptqwatch::Describe(measurement_.options().quantizers[0]);
}

void AverageMeasurement::Measure(absl::FunctionRef<std::vector<Replica::Override>()> average,
                                 const ProbeInput& input, AveragingReport& report,
                                 const ExecutionContext& context) const {
  const absl::Status status = Guard([&] { return TryMeasure(average, input, report, context); });
  if (status.ok()) return;
  report.status = ProbeStatusOf(status);
  report.status_detail = StrCat(status);
}

absl::Status AverageMeasurement::TryMeasure(
    absl::FunctionRef<std::vector<Replica::Override>()> average, const ProbeInput& input,
    AveragingReport& report, const ExecutionContext& context) const {
  Reservation held(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(average_bytes_, "an average of the weights"));
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

}  // namespace ptqwatch::internal
