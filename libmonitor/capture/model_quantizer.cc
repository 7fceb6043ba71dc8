#include "capture/model_quantizer.h"

#include <algorithm>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "quantize/methods.h"

namespace ptqwatch::internal {
namespace {

bool AnyCodesUseStatistics(const LayerSpecs& specs) {
  return std::any_of(specs.begin(), specs.end(), [](const QuantizerSpec& spec) {
    return StatisticsOf(spec) != Statistics::kNone;
  });
}

}  // namespace

at::Tensor ModelQuantizer::MatrixOf(size_t layer) const {
  const CoveredLayer& covered = plan_.layers[layer];
  return covered.AsMatrix(replica_.loaded(covered.entry), backend_.device());
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
    CapturedGrams grams;
    Reservation held(context.bytes);
    if (captured.ok()) captured = held.Take(plan_.GramBytesOf(pass), "the Gram matrices");
    if (captured.ok()) {
      // The lease undoes the closure's writes to buffers at the end of the pass.
      const absl::StatusOr<Replica::Lease> lease = replica_.Use({});
      captured = lease.status();
      if (captured.ok()) {
        auto result = CaptureGrams(replica_, plan_, pass, calibration_, backend_, context);
        captured = result.status();
        if (result.ok()) grams = *std::move(result);
      }
      ++run.captures;
      run.capture_seconds += watch.Lap();
    }
    for (size_t quantizer : which) {
      absl::Status& status = run.quantizers[quantizer].status;
      if (status.ok() && AnyCodesUseStatistics(quantizers[quantizer])) status = captured;
    }
    QuantizePass(quantizers, which, pass, grams, on_layer, run, context);
    watch.Lap();
  }
}

void ModelQuantizer::QuantizePass(const std::vector<LayerSpecs>& quantizers,
                                  const std::vector<size_t>& which, const std::vector<int>& pass,
                                  const CapturedGrams& captured, OnQuantizedLayer on_layer,
                                  QuantizationRun& run, const ExecutionContext& context) const {
  const std::vector<std::unique_ptr<LayerGram>>& grams = captured.grams;
  struct Cell {
    size_t quantizer;
    size_t layer;
  };
  Stopwatch watch(context.clock);
  std::vector<QuantizeBackend::Task> tasks;
  std::vector<Cell> places;
  int64_t weights = 0;
  const auto work = [&] {
    backend_.Quantize(
        tasks,
        [&](size_t i, absl::StatusOr<QuantizedMatrix> result) {
          const auto [quantizer, layer] = places[i];
          QuantizationRun::Quantizer& outcome = run.quantizers[quantizer];
          if (outcome.status.ok()) outcome.status = result.status();
          if (outcome.status.ok()) on_layer(quantizer, layer, tasks[i].gram, *std::move(result));
          outcome.seconds += watch.Lap();
        },
        context);
    tasks.clear();
    places.clear();
    weights = 0;
  };
  for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    const int gram = plan_.layers[layer].gram;
    if (gram < pass.front() || gram > pass.back()) continue;
    at::Tensor weight;
    for (size_t quantizer : which) {
      if (!run.quantizers[quantizer].status.ok()) continue;
      if (!weight.defined()) {
        weight = MatrixOf(layer);
        weights += weight.numel();
      }
      tasks.push_back(
          {.weight = weight,
           .gram = grams.empty() ? nullptr : grams[static_cast<size_t>(gram - pass.front())].get(),
           .spec = SpecWithRows(plan_.layers[layer].name, plan_.layers[layer].inputs,
                                quantizers[quantizer][layer], captured.rows),
           .stored_size = options_.stored_sizes});
      places.push_back({quantizer, layer});
    }
    if (!tasks.empty() && weights >= backend_.weights_together()) work();
  }
  if (!tasks.empty()) work();
}

absl::Status ModelQuantizer::RunSequential(size_t quantizer, const LayerSpecs& specs,
                                           OnQuantizedLayer on_layer,
                                           const ExecutionContext& context) const {
  PTQWATCH_ASSIGN_OR_RETURN(Replica::Lease lease, replica_.Use({}));
  for (int gram : plan_.stages) {
    Reservation held(context.bytes);
    PTQWATCH_RETURN_IF_ERROR(held.Take(plan_.GramBytesOf({gram}), "a Gram matrix"));
    PTQWATCH_ASSIGN_OR_RETURN(
        const CapturedGrams captured,
        CaptureGrams(replica_, plan_, {gram}, calibration_, backend_, context));
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      const CoveredLayer& covered = plan_.layers[layer];
      if (covered.gram != gram) continue;
      const QuantizeBackend::Task task{
          .weight = MatrixOf(layer),
          .gram = captured.grams.front().get(),
          .spec = SpecWithRows(covered.name, covered.inputs, specs[layer], captured.rows),
          .stored_size = options_.stored_sizes};
      absl::Status status;
      backend_.Quantize(
          absl::MakeConstSpan(&task, 1),
          [&](size_t, absl::StatusOr<QuantizedMatrix> result) {
            status = result.status();
            if (!status.ok()) return;
            // A layer without codes stays in full precision.
            const at::Tensor matrix = result->View(covered.outputs, covered.inputs);
            if (matrix.defined()) lease.Write({covered.entry, covered.AsStored(matrix)});
            on_layer(quantizer, layer, task.gram, *std::move(result));
          },
          context);
      PTQWATCH_RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
