#include "streamed/checkpoint_curvature.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include "ATen/core/grad_mode.h"
#include "absl/status/statusor.h"
#include "base/guard.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "probes/curvature_probe.h"
#include "session/model_session.h"
#include "streamed/whole_model.h"

namespace ptqwatch::internal {
namespace {

// The weights of all quantizers as overrides of the replica.
QuantizedWeights OverridesOf(const CapturePlan& plan,
                             std::vector<std::vector<NamedWeight>> quantized) {
  std::map<std::string_view, int> entries;
  for (const CoveredLayer& layer : plan.layers) entries.emplace(layer.name, layer.entry);
  QuantizedWeights overrides(quantized.size());
  for (size_t i = 0; i < quantized.size(); ++i) {
    for (NamedWeight& weight : quantized[i]) {
      overrides[i].push_back({entries.at(weight.name), std::move(weight.value)});
    }
  }
  return overrides;
}

absl::StatusOr<ProbeResult> MeasureCurvatureOrThrow(
    const Decoder& decoder, const std::vector<Batch>& probe, const CurvatureOptions& options,
    std::vector<std::vector<NamedWeight>> quantized, ProbeResult& quantization,
    const ExecutionContext& context, const CurvatureEngineOptions& engine) {
  at::NoGradGuard no_grad;
  Reservation live(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(live.Take(4 * decoder.parameters(), "the model"));
  PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                            MakeDecoderSubject(decoder, Batches(probe)));
  // Slices of a product's weight, if the head has any, are no layers.
  LayerSelection linears;
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    for (const DecoderLinear& linear : decoder.LinearsOf(block)) {
      if (linear.expert == 0) linears.include.push_back(linear.tensor());
    }
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelSession> session,
      ModelSession::Open(*subject, {.curvature = CurvatureBatchesRequest{},
                                    .capture = CaptureRequest{std::move(linears),
                                                              std::numeric_limits<int64_t>::max()},
                                    .bytes = context.bytes}));
  PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<CurvatureProbe> curvature,
                            CurvatureProbe::Create(*session, options, engine, context));
  session->ReleaseLiveTensors();
  if (!curvature->disabled().empty()) {
    return curvature->NotMeasured(ProbeStatus::kDisabled, curvature->disabled());
  }
  std::get<QuantizationResult>(quantization.value).weights =
      OverridesOf(session->plan(), std::move(quantized));
  const SnapshotPlace place;
  const OptimizerState no_optimizer;
  const ProbeState cold;
  ProbeResult measured = curvature->Measure({.place = place,
                                             .optimizer = no_optimizer,
                                             .state = cold,
                                             .earlier = absl::MakeSpan(&quantization, 1)},
                                            context);
  const CurvatureReport& report = std::get<CurvatureResult>(measured.value).report;
  if (decoder.config().mixture && report.mode == HessianMode::kFiniteDifference) {
    return curvature->NotMeasured(
        ProbeStatus::kDisabled,
        "memory suffices for finite differences alone, which see jumps where a token of a mixture "
        "changes its expert");
  }
  return measured;
}

}  // namespace

ProbeResult MeasureCheckpointCurvature(const Decoder& decoder, const std::vector<Batch>& probe,
                                       const CurvatureOptions& options,
                                       std::vector<std::vector<NamedWeight>> quantized,
                                       ProbeResult& quantization, const ExecutionContext& context,
                                       const CurvatureEngineOptions& engine) {
  absl::StatusOr<ProbeResult> measured = Guard([&] {
    return MeasureCurvatureOrThrow(decoder, probe, options, std::move(quantized), quantization,
                                   context, engine);
  });
  auto& result = std::get<QuantizationResult>(quantization.value);
  result.weights.clear();
  result.held.reset();
  if (measured.ok()) return *std::move(measured);
  return NoCurvature(options, ProbeStatusOf(measured.status()), StrCat(measured.status()));
}

ProbeResult NoCurvature(const CurvatureOptions& options, ProbeStatus status, std::string detail) {
  ProbeResult result;
  result.outcome = {std::string(CurvatureProbe::kName), OutcomeOf(status), detail};
  CurvatureResult value;
  value.report.scope = options.scope;
  value.report.status = status;
  value.report.status_detail = std::move(detail);
  result.value = std::move(value);
  return result;
}

}  // namespace ptqwatch::internal
