#include "probes/average_measurement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "probes/layer_costs.h"
#include "probes/loss_pairs.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

// Bytes per element of the parameter being averaged: its sum and the next value, in float64.
constexpr int64_t kWorkingBytes = 16;

// The same options for these quantizers alone.
QuantizationOptions OfThese(QuantizationOptions options, const std::vector<size_t>& quantizers) {
  std::vector<QuantizerSpec> specs;
  for (const size_t quantizer : quantizers) specs.push_back(options.quantizers.at(quantizer));
  options.quantizers = std::move(specs);
  options.owners.clear();
  return options;
}

// Fills in how the losses differ from the snapshot's own.
template <typename Record>
void AddChange(const std::vector<UnitLosses>& own, const std::vector<UnitLosses>& found,
               Record& record) {
  const std::optional<RatioEstimate> change = ChangeOf(own, found);
  if (!change) return;
  record.change_nats = change->value;
  if (std::isfinite(change->stderr_value)) record.change_stderr_nats = change->stderr_value;
}

}  // namespace

std::vector<size_t> AveragedQuantizers(const std::vector<QuantizerSpec>& quantizers,
                                       absl::Span<const double> seconds) {
  std::vector<size_t> chosen = {WatchedQuantizer(quantizers).value_or(0)};
  const int watched_bits = quantizers.at(chosen[0]).bits;
  for (const int bits : {3, 4}) {
    if (bits == watched_bits) continue;
    std::optional<size_t> cheapest;
    for (size_t i = 0; i < quantizers.size(); ++i) {
      if (quantizers[i].bits == bits && (!cheapest || seconds[i] < seconds[*cheapest])) {
        cheapest = i;
      }
    }
    if (cheapest) chosen.push_back(*cheapest);
  }
  return chosen;
}

AverageMeasurement::AverageMeasurement(ModelSession& session,
                                       const QuantizationOptions& quantization,
                                       const RecentWeights& recent)
    : session_(session),
      quantizers_(AveragedQuantizers(
          quantization.quantizers,
          CountQuantizeSeconds(session.plan(), quantization.quantizers, quantization.overrides))),
      measurement_(session, OfThese(quantization, quantizers_)) {
  int64_t largest = 0;
  for (int entry : recent.entries()) {
    largest = std::max(largest, session.replica().loaded(entry).numel());
  }
  average_bytes_ = recent.window().snapshot_bytes() + kWorkingBytes * largest;
}

std::string AverageMeasurement::Quantizers() const {
  std::string text;
  for (const QuantizerSpec& spec : measurement_.options().quantizers) {
    text += StrCat(text.empty() ? "" : " and ", ::ptqwatch::Describe(spec));
  }
  return text;
}

QuantizationResult AverageMeasurement::Losses(const ProbeInput& input,
                                              const ExecutionContext& context,
                                              const std::vector<size_t>& batches) const {
  std::map<std::string, double> ignored;
  return measurement_.Measure({.place = input.place,
                               .optimizer = input.optimizer,
                               .state = input.state,
                               .poll = input.poll,
                               .keep_quantized = false},
                              ignored, context, batches);
}

OwnLosses AverageMeasurement::Own(const ProbeInput& input, const ExecutionContext& context) const {
  const auto* found = input.Earlier<QuantizationResult>();
  if (found == nullptr || found->quantized.empty()) return {};
  const bool of_others = std::any_of(quantizers_.begin(), quantizers_.end(), [&](size_t i) {
    return found->quantizers[i].status == ProbeStatus::kOtherRank;
  });
  if (of_others) {
    QuantizationResult measured = Losses(input, context, {});
    return {std::move(measured.losses), std::move(measured.quantized)};
  }
  OwnLosses own{found->losses};
  for (const size_t i : quantizers_) own.quantized.push_back(found->quantized[i]);
  return own;
}

void AverageMeasurement::Measure(absl::FunctionRef<std::vector<Replica::Override>()> average,
                                 const OwnLosses& own, const ProbeInput& input,
                                 AveragingReport& report, const ExecutionContext& context) const {
  const absl::Status status =
      Guard([&] { return TryMeasure(average, own, input, report, context); });
  if (status.ok()) return;
  report.status = ProbeStatusOf(status);
  report.status_detail = StrCat(status);
}

absl::Status AverageMeasurement::TryMeasure(
    absl::FunctionRef<std::vector<Replica::Override>()> average, const OwnLosses& own,
    const ProbeInput& input, AveragingReport& report, const ExecutionContext& context) const {
  Reservation held(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(held.Take(average_bytes_, "an average of the weights"));
  PTQWATCH_ASSIGN_OR_RETURN(const Replica::StandIn stand_in, session_.replica().Replace(average()));
  std::vector<size_t> batches;
  for (const std::vector<UnitLosses>& losses : own.quantized) batches.push_back(losses.size());
  QuantizationResult found = Losses(input, context, batches);
  AddChange(own.full, found.losses, report);
  for (size_t i = 0; i < own.quantized.size(); ++i) {
    AddChange(own.quantized[i], found.quantized[i], found.quantizers[i]);
  }
  report.status = found.status;
  report.status_detail = std::move(found.detail);
  report.loss_nats = found.loss_nats;
  report.loss_stderr_nats = found.loss_stderr_nats;
  report.probe_tokens = found.tokens;
  report.quantization = std::move(found.quantizers);
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
