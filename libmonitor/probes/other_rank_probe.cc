#include "probes/other_rank_probe.h"

#include <optional>
#include <string>
#include <utility>

#include "base/strings.h"
#include "probes/averaging_probe.h"
#include "probes/curvature_probe.h"
#include "probes/mixed_precision_probe.h"
#include "probes/noise_probe.h"
#include "probes/work_share.h"

namespace ptqwatch::internal {
namespace {

template <typename Part>
Part OwnedBy(int64_t owner, Part part) {
  part.status = ProbeStatus::kOtherRank;
  part.status_detail = OwnerDetail(owner);
  return part;
}

}  // namespace

ProbeNeeds OtherRankProbe::Needs(int64_t /*available*/) const {
  return {.text = StrCat(name(), ": ", OwnerDetail(owner_), "\n")};
}

ProbeResult OtherRankProbe::Measure(const ProbeInput& /*input*/,
                                    const ExecutionContext& /*context*/) {
  return {.outcome = {std::string(name()), OutcomeOf(ProbeStatus::kOtherRank)}, .value = value_};
}

std::unique_ptr<Probe> CurvatureOfOther(int64_t owner, const CurvatureOptions& options) {
  CurvatureResult result{.report = OwnedBy(owner, CurvatureReport())};
  result.report.scope = options.scope;
  return std::make_unique<OtherRankProbe>(CurvatureProbe::kName, owner, std::move(result));
}

std::unique_ptr<Probe> MixedPrecisionOfOther(int64_t owner, const MonitorOptions& options) {
  const std::optional<BitPair> pair = ChooseBitPair(options.quantizers);
  if (!pair) return nullptr;
  MixedPrecisionReport report = MixedPrecisionProbe::HeaderOf(options.quantizers[pair->low],
                                                              options.quantizers[pair->raised]);
  return std::make_unique<OtherRankProbe>(
      MixedPrecisionProbe::kName, owner,
      MixedPrecisionResult{.mixtures = {OwnedBy(owner, std::move(report))}});
}

std::unique_ptr<Probe> AveragingOfOther(int64_t owner, const AveragingOptions& options) {
  AveragingResult result;
  AveragingReport window = OwnedBy(owner, AveragingReport());
  window.kind = AveragingKind::kWindow;
  window.window = options.window;
  result.averages.push_back(std::move(window));
  if (options.decay > 0) {
    AveragingReport exponential = OwnedBy(owner, AveragingReport());
    exponential.kind = AveragingKind::kExponential;
    exponential.decay = options.decay;
    result.averages.push_back(std::move(exponential));
  }
  return std::make_unique<OtherRankProbe>(AveragingProbe::kName, owner, std::move(result));
}

std::unique_ptr<Probe> NoiseOfOther(int64_t owner, double relative_norm) {
  NoiseReport report = OwnedBy(owner, NoiseReport());
  report.relative_norm = relative_norm;
  return std::make_unique<OtherRankProbe>(NoiseProbe::kName, owner,
                                          NoiseResult{.report = std::move(report)});
}

}  // namespace ptqwatch::internal
