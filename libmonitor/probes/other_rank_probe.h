#ifndef PTQWATCH_PROBES_OTHER_RANK_PROBE_H_
#define PTQWATCH_PROBES_OTHER_RANK_PROBE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "probes/probe.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// Stands for a probe that another rank runs: fills the probe's part of every report with the
/// status kOtherRank, and does no work.
class OtherRankProbe final : public Probe {
 public:
  /// `name` of the probe, for which `owner` is responsible, and the part of the report.
  OtherRankProbe(std::string_view name, int64_t owner, ResultValue value)
      : Probe({.name = name}), owner_(owner), value_(std::move(value)) {}

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;

 private:
  const int64_t owner_;
  const ResultValue value_;
};

std::unique_ptr<Probe> CurvatureOfOther(int64_t owner, const CurvatureOptions& options);
/// Null if the quantizers have no two bit-widths of one method.
std::unique_ptr<Probe> MixedPrecisionOfOther(int64_t owner, const MonitorOptions& options);
std::unique_ptr<Probe> AveragingOfOther(int64_t owner, const AveragingOptions& options);
std::unique_ptr<Probe> NoiseOfOther(int64_t owner, double relative_norm);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_OTHER_RANK_PROBE_H_
