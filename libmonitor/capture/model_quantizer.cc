#include "capture/model_quantizer.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "capture/activation_capture.h"
#include "quantize/statistics_use.h"

namespace ptqwatch::internal {
namespace {

bool AnyCodesUseStatistics(const LayerSpecs& specs) {
  return std::any_of(specs.begin(), specs.end(),
                     [](const QuantizerSpec& spec) { return CodesUseStatistics(spec); });
}

}  // namespace

int64_t ModelQuantizer::OwnPasses(const LayerSpecs& specs) const {
  const bool own = options_.mode == CalibrationMode::kSequential && AnyCodesUseStatistics(specs);
  return own ? static_cast<int64_t>(plan_.stages.size()) : 0;
}

int64_t ModelQuantizer::SharedPasses(const std::vector<LayerSpecs>& quantizers) const {
  const bool any = std::any_of(quantizers.begin(), quantizers.end(),
                               [this](const LayerSpecs& specs) { return OwnPasses(specs) == 0; });
  return any ? static_cast<int64_t>(plan_.Passes(options_.max_gram_bytes).size()) : 0;
}

void ModelQuantizer::Run(const std::vector<LayerSpecs>& quantizers, QuantizationListener& listener,
                         const ExecutionContext& context) const {
  at::NoGradGuard no_grad;
  std::vector<size_t> shared;
  for (size_t i = 0; i < quantizers.size(); ++i) {
    if (OwnPasses(quantizers[i]) == 0) shared.push_back(i);
  }
  if (!shared.empty()) RunShared(quantizers, shared, listener, context);
  for (size_t i = 0; i < quantizers.size(); ++i) {
    if (OwnPasses(quantizers[i]) == 0) continue;
    listener.OnDone(i, RunSequential(i, quantizers[i], listener, context));
  }
}

void ModelQuantizer::RunShared(const std::vector<LayerSpecs>& quantizers,
                               const std::vector<size_t>& which, QuantizationListener& listener,
                               const ExecutionContext& context) const {
  std::vector<absl::Status> outcome(quantizers.size());
  absl::Status captured;
  const std::vector<std::vector<int>> passes = plan_.Passes(options_.max_gram_bytes);
  for (size_t pass = 0; pass < passes.size(); ++pass) {
    std::vector<GramStatistics> statistics;
    if (captured.ok()) {
      // A lease, so that what the closure writes to a buffer ends with the pass.
      const absl::StatusOr<Replica::Lease> lease = replica_.Use({});
      captured = lease.status();
      if (captured.ok()) {
        auto result = CaptureGrams(replica_, plan_, passes[pass], calibration_, context);
        captured = result.status();
        if (result.ok()) statistics = *std::move(result);
      }
      listener.OnCaptured();
    }
    const int first = passes[pass].front();
    const int last = passes[pass].back();
    for (size_t quantizer : which) {
      absl::Status& status = outcome[quantizer];
      const LayerSpecs& specs = quantizers[quantizer];
      if (status.ok() && AnyCodesUseStatistics(specs)) status = captured;
      for (size_t layer = 0; layer < plan_.layers.size() && status.ok(); ++layer) {
        const int gram = plan_.layers[layer].gram;
        if (gram < first || gram > last) continue;
        const GramStatistics* of_layer =
            statistics.empty() ? nullptr : &statistics[static_cast<size_t>(gram - first)];
        status =
            QuantizeLayer(quantizer, layer, specs[layer], of_layer, nullptr, listener, context);
      }
      if (pass + 1 == passes.size()) listener.OnDone(quantizer, status);
    }
  }
}

absl::Status ModelQuantizer::RunSequential(size_t quantizer, const LayerSpecs& specs,
                                           QuantizationListener& listener,
                                           const ExecutionContext& context) const {
  absl::StatusOr<Replica::Lease> lease = replica_.Use({});
  if (!lease.ok()) return lease.status();
  for (int gram : plan_.stages) {
    auto statistics = CaptureGrams(replica_, plan_, {gram}, calibration_, context);
    if (!statistics.ok()) return statistics.status();
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      if (plan_.layers[layer].gram != gram) continue;
      absl::Status status = QuantizeLayer(quantizer, layer, specs[layer], &statistics->front(),
                                          &*lease, listener, context);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status ModelQuantizer::QuantizeLayer(size_t quantizer, size_t layer,
                                           const QuantizerSpec& spec,
                                           const GramStatistics* statistics, Replica::Lease* lease,
                                           QuantizationListener& listener,
                                           const ExecutionContext& context) const {
  if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
  const CoveredLayer& covered = plan_.layers[layer];
  const at::Tensor weight = covered.AsMatrix(replica_.loaded(covered.entry));
  const MatrixView view{weight.const_data_ptr<float>(), covered.outputs, covered.inputs};
  absl::StatusOr<QuantizedWeight> result = Quantize(view, statistics, spec, context);
  if (!result.ok()) return result.status();
  // A layer without codes stays in full precision.
  if (lease != nullptr && !result->dequantized.empty()) {
    at::Tensor matrix = at::empty({covered.outputs, covered.inputs}, at::kFloat);
    std::copy(result->dequantized.begin(), result->dequantized.end(),
              matrix.mutable_data_ptr<float>());
    lease->Write({covered.entry, covered.AsStored(matrix)});
  }
  listener.OnLayer(quantizer, layer, view, statistics, *std::move(result));
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
