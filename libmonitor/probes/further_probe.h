#ifndef PTQWATCH_PROBES_FURTHER_PROBE_H_
#define PTQWATCH_PROBES_FURTHER_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/work_share.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Measures the loss increase of the watched quantizer on this rank's further sets of probe
/// batches, and pools them with the quantization probe's. Quantizes once for all of its sets, or
/// takes the weights that the quantization probe has kept. Sets of other ranks have the status
/// kOtherRank.
class FurtherProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "further_probe_sets";

  /// `quantization_cost` is that of the quantization probe, with `quantizers` of them on this rank.
  /// `session` must outlive the probe.
  FurtherProbe(ModelSession& session, const MonitorOptions& options, const WorkShare& share,
               const ProbeCost& quantization_cost, size_t quantizers);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  // The report before anything was measured: all sets are others'.
  PooledLoss Bare() const;
  // Fills in the sets in own_.
  void MeasureOwn(const QuantizationResult& quantization, const ProbeInput& input,
                  PooledLoss& pooled, const ExecutionContext& context) const;
  ProbeSet MeasureSet(size_t set, const std::vector<Replica::Override>& weights,
                      const ExecutionContext& context) const;
  ProbeResult ResultOf(PooledLoss pooled) const;

  ModelSession& session_;
  const QuantizationOptions options_;
  const int64_t rank_;
  const size_t watched_;               // quantizer
  const std::vector<int64_t> owners_;  // of each set; the first is the quantization probe's
  const std::vector<size_t> own_;      // further sets
  std::optional<QuantizationMeasurement> measurement_;  // of the watched quantizer; with own_
  ProbeCost cost_;                                      // of a set
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_FURTHER_PROBE_H_
