#include "capture/model_quantizer.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "capture/activation_capture.h"
#include "quantize/statistics_use.h"

namespace ptqwatch::internal {
namespace {

bool AnyCodesUseStatistics(const LayerSpecs& specs) {
  return std::any_of(specs.begin(), specs.end(),
                     [](const QuantizerSpec& spec) { return CodesUseStatistics(spec); });
}

}  // namespace

/// A layer's weight as a matrix, and its quantizer.
struct ModelQuantizer::PreparedLayer {
  size_t index;
  at::Tensor weight;
  MatrixView view;
  const GramStatistics* statistics;
  LayerQuantizer quantizer;
};

ModelQuantizer::PreparedLayer ModelQuantizer::Prepare(size_t layer,
                                                      const GramStatistics* statistics) const {
  const CoveredLayer& covered = plan_.layers[layer];
  at::Tensor weight = covered.AsMatrix(replica_.loaded(covered.entry));
  const MatrixView view{weight.const_data_ptr<float>(), covered.outputs, covered.inputs};
  return {.index = layer,
          .weight = std::move(weight),
          .view = view,
          .statistics = statistics,
          .quantizer = LayerQuantizer(view, statistics)};
}

int64_t ModelQuantizer::OwnPasses(const LayerSpecs& specs) const {
  const bool own = options_.mode == CalibrationMode::kSequential && AnyCodesUseStatistics(specs);
  return own ? static_cast<int64_t>(plan_.stages.size()) : 0;
}

int64_t ModelQuantizer::SharedPasses(const std::vector<LayerSpecs>& quantizers) const {
  const bool any = std::any_of(quantizers.begin(), quantizers.end(),
                               [this](const LayerSpecs& specs) { return OwnPasses(specs) == 0; });
  return any ? static_cast<int64_t>(plan_.Passes(options_.max_gram_bytes).size()) : 0;
}

QuantizationRun ModelQuantizer::Run(const std::vector<LayerSpecs>& quantizers,
                                    OnQuantizedLayer on_layer,
                                    const ExecutionContext& context) const {
  at::NoGradGuard no_grad;
  QuantizationRun run;
  run.quantizers.resize(quantizers.size());
  std::vector<size_t> shared;
  for (size_t i = 0; i < quantizers.size(); ++i) {
    if (OwnPasses(quantizers[i]) == 0) shared.push_back(i);
  }
  if (!shared.empty()) RunShared(quantizers, shared, on_layer, run, context);
  Stopwatch watch(context.clock);
  for (size_t i = 0; i < quantizers.size(); ++i) {
    if (OwnPasses(quantizers[i]) == 0) continue;
    run.quantizers[i].status = RunSequential(i, quantizers[i], on_layer, context);
    run.quantizers[i].seconds += watch.Lap();
  }
  return run;
}

void ModelQuantizer::RunShared(const std::vector<LayerSpecs>& quantizers,
                               const std::vector<size_t>& which, OnQuantizedLayer on_layer,
                               QuantizationRun& run, const ExecutionContext& context) const {
  Stopwatch watch(context.clock);
  absl::Status captured;
  for (const std::vector<int>& pass : plan_.Passes(options_.max_gram_bytes)) {
    std::vector<GramStatistics> statistics;
    Reservation held(context.bytes);
    if (captured.ok()) captured = held.Take(plan_.GramBytesOf(pass), "the Gram matrices");
    if (captured.ok()) {
      // A lease, so that what the closure writes to a buffer ends with the pass.
      const absl::StatusOr<Replica::Lease> lease = replica_.Use({});
      captured = lease.status();
      if (captured.ok()) {
        auto result = CaptureGrams(replica_, plan_, pass, calibration_, context);
        captured = result.status();
        if (result.ok()) statistics = *std::move(result);
      }
      ++run.captures;
      run.capture_seconds += watch.Lap();
    }
    for (size_t quantizer : which) {
      absl::Status& status = run.quantizers[quantizer].status;
      if (status.ok() && AnyCodesUseStatistics(quantizers[quantizer])) status = captured;
    }
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      const int gram = plan_.layers[layer].gram;
      if (gram < pass.front() || gram > pass.back()) continue;
      if (std::none_of(which.begin(), which.end(),
                       [&](size_t i) { return run.quantizers[i].status.ok(); })) {
        break;
      }
      PreparedLayer prepared = Prepare(
          layer,
          statistics.empty() ? nullptr : &statistics[static_cast<size_t>(gram - pass.front())]);
      for (size_t quantizer : which) {
        QuantizationRun::Quantizer& outcome = run.quantizers[quantizer];
        if (!outcome.status.ok()) continue;
        outcome.status = QuantizeLayer(quantizer, prepared, quantizers[quantizer][layer], nullptr,
                                       on_layer, context);
        outcome.seconds += watch.Lap();
      }
    }
  }
}

absl::Status ModelQuantizer::RunSequential(size_t quantizer, const LayerSpecs& specs,
                                           OnQuantizedLayer on_layer,
                                           const ExecutionContext& context) const {
  PTQWATCH_ASSIGN_OR_RETURN(Replica::Lease lease, replica_.Use({}));
  for (int gram : plan_.stages) {
    Reservation held(context.bytes);
    PTQWATCH_RETURN_IF_ERROR(held.Take(plan_.GramBytesOf({gram}), "a Gram matrix"));
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<GramStatistics> statistics,
                              CaptureGrams(replica_, plan_, {gram}, calibration_, context));
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      if (plan_.layers[layer].gram != gram) continue;
      PreparedLayer prepared = Prepare(layer, &statistics.front());
      PTQWATCH_RETURN_IF_ERROR(
          QuantizeLayer(quantizer, prepared, specs[layer], &lease, on_layer, context));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelQuantizer::QuantizeLayer(size_t quantizer, PreparedLayer& layer,
                                           const QuantizerSpec& spec, Replica::Lease* lease,
                                           OnQuantizedLayer on_layer,
                                           const ExecutionContext& context) const {
  PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  PTQWATCH_ASSIGN_OR_RETURN(QuantizedWeight result, layer.quantizer.Quantize(spec, context));
  // A layer without codes stays in full precision.
  if (lease != nullptr && !result.dequantized.empty()) {
    const CoveredLayer& covered = plan_.layers[layer.index];
    at::Tensor matrix = at::empty({covered.outputs, covered.inputs}, at::kFloat);
    std::copy(result.dequantized.begin(), result.dequantized.end(),
              matrix.mutable_data_ptr<float>());
    lease->Write({covered.entry, covered.AsStored(matrix)});
  }
  on_layer(quantizer, layer.index, layer.view, layer.statistics, std::move(result));
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
