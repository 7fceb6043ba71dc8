#ifndef PTQWATCH_PROBES_MIXED_PRECISION_PROBE_H_
#define PTQWATCH_PROBES_MIXED_PRECISION_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "capture/layer_selection.h"
#include "probes/loss_comparison.h"
#include "probes/probe.h"
#include "ptqwatch/quantizer.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Two entries of MonitorOptions::quantizers: the watched method and format at its smallest
/// bit-width, and at its next larger one.
struct BitPair {
  size_t low = 0;
  size_t raised = 0;
  friend bool operator==(const BitPair&, const BitPair&) = default;
};
/// nullopt if only one bit-width of the watched method is tried.
std::optional<BitPair> ChooseBitPair(absl::Span<const QuantizerSpec> quantizers);

/// A layer that could be raised.
struct RaisableLayer {
  std::string name;
  int entry = 0;  ///< in the replica's table
  int64_t parameters = 0;
  double saving_nats = 0;  ///< predicted
  int added_bits = 1;      ///< of each number
};
/// Keeps the layers with a positive saving that get more bits, and sorts them by saving per
/// additional bit of storage, largest first.
std::vector<RaisableLayer> RankLayers(std::vector<RaisableLayer> layers);
/// The numbers of best layers raised in the measured mixtures, ascending. The last is a quarter of
/// `layers`, at least 1 and at most `ranked`; the others are a quarter and a half of it.
std::vector<size_t> MixtureSizes(size_t layers, size_t ranked);

/// Measures the gain from keeping the worst layers at more bits. Ranks the layers by what raising
/// each saves in its share g_l'd_l + d_l'(Hd)_l / 2 of the predicted loss change, per additional
/// bit of storage, and compares the losses with the best few layers raised. Takes their weights
/// from the two quantizers, so nothing is quantized again.
class MixedPrecisionProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "mixed_precision";

  /// Null if there is no such pair of bit-widths. `session` must outlive the probe.
  static std::unique_ptr<MixedPrecisionProbe> Create(ModelSession& session,
                                                     const std::vector<QuantizerSpec>& quantizers,
                                                     const SpecOverrides& overrides,
                                                     const ComparisonOptions& comparison);

  /// A report without results, for the pair's two specs.
  static MixedPrecisionReport HeaderOf(const QuantizerSpec& low, const QuantizerSpec& raised);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  MixedPrecisionProbe(ModelSession& session, const std::vector<QuantizerSpec>& quantizers,
                      const SpecOverrides& overrides, const ComparisonOptions& comparison,
                      BitPair pair)
      : Probe({.name = kName,
               .uses = {"quantization", "curvature"},
               .uses_quantized_weights = true,
               .with_curvature = true}),
        session_(session),
        low_(quantizers[pair.low]),
        raised_(quantizers[pair.raised]),
        overrides_(overrides),
        comparison_(comparison),
        pair_(pair) {}
  MixedPrecisionReport Header() const { return HeaderOf(low_, raised_); }
  int BitsOf(const QuantizerSpec& spec, int entry) const {
    return SpecForLayer(overrides_, spec, session_.replica().name(entry)).bits;
  }
  absl::Status MeasureMixtures(const ProbeInput& input, const QuantizationResult& quantization,
                               const CurvatureResult& curvature, MixedPrecisionResult& result,
                               const ExecutionContext& context) const;

  ModelSession& session_;
  const QuantizerSpec low_;
  const QuantizerSpec raised_;
  const SpecOverrides overrides_;
  const ComparisonOptions comparison_;
  const BitPair pair_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_MIXED_PRECISION_PROBE_H_
