#include "ptqwatch/offline/quantize_model.h"

#include <memory>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/glob.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "capture/capture_plan.h"
#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "ptqwatch/subject.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch {
namespace {

using internal::CapturePlan;
using internal::CoveredLayer;
using internal::ModelSession;
using internal::Replica;
using internal::StrCat;

const QuantizerSpec& SpecFor(const ModelQuantizationOptions& options, std::string_view name) {
  for (const SpecOverride& given : options.overrides) {
    if (internal::GlobMatch(given.layers, name)) return given.spec;
  }
  return options.spec;
}

// Fills a ModelQuantization and reports progress to the caller.
class Collector {
 public:
  Collector(const CapturePlan& plan, const internal::LayerSpecs& specs, const Replica& replica,
            const ModelQuantizationOptions& options, Clock* clock)
      : plan_(plan), specs_(specs), options_(options), watch_(clock) {
    for (const CoveredLayer& covered : plan.layers) {
      QuantizedLayer& layer = result_.layers.emplace_back();
      layer.name = covered.name;
      layer.shape = replica.loaded(covered.entry).sizes().vec();
      layer.outputs = covered.outputs;
      layer.inputs = covered.inputs;
      layer.transposed = covered.transposed;
    }
    result_.skipped = plan.skipped;
    result_.parameters = replica.table().parameters();
    result_.covered_parameters = plan.covered_parameters;
    result_.unseen = plan.Unseen();
  }

  void Add(size_t index, const internal::LayerGram* gram, QuantizedWeight weight) {
    QuantizedLayer& layer = result_.layers[index];
    layer.spec = specs_[index];
    if (gram != nullptr) {
      layer.tokens = gram->tokens();
      layer.skipped_rows = gram->skipped_rows();
    }
    layer.weight = std::move(weight);
    const double seconds = watch_.Lap();
    if (options_.progress) {
      options_.progress({++done_, static_cast<int64_t>(plan_.layers.size()), layer.name, seconds});
    }
  }
  ModelQuantization Take() { return std::move(result_); }

 private:
  const CapturePlan& plan_;
  const internal::LayerSpecs& specs_;
  const ModelQuantizationOptions& options_;
  internal::Stopwatch watch_;
  int64_t done_ = 0;
  ModelQuantization result_;
};

absl::StatusOr<ModelQuantization> QuantizeOrThrow(Subject& subject,
                                                  const ModelQuantizationOptions& options,
                                                  const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  at::NoGradGuard no_grad;
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelSession> session,
      ModelSession::Open(
          subject, {.calibration = true,
                    .capture = internal::CaptureRequest{options.layers, options.max_gram_bytes},
                    .require_finite = true,
                    .bytes = context.bytes}));
  session->ReleaseLiveTensors();
  const CapturePlan& plan = session->plan();
  internal::LayerSpecs specs;
  std::vector<std::string> names;
  for (const CoveredLayer& layer : plan.layers) {
    specs.push_back(SpecFor(options, layer.name));
    names.push_back(layer.name);
  }
  if (const absl::Status status = internal::CheckOverridesMatch(options.overrides, names);
      !status.ok()) {
    return absl::InvalidArgumentError(StrCat("ModelQuantizationOptions.", status));
  }
  internal::HostBackend backend;  // codes are needed on the host
  const internal::ModelQuantizer quantizer(
      session->replica(), plan, session->calibration(), backend,
      {.mode = options.calibration_mode, .max_gram_bytes = options.max_gram_bytes});
  Collector collector(plan, specs, session->replica(), options, context.clock);
  const internal::QuantizationRun run = quantizer.Run(
      {specs},
      [&](size_t, size_t layer, const internal::LayerGram* gram, internal::QuantizedMatrix result) {
        collector.Add(layer, gram, std::move(result.weight));
      },
      context);
  PTQWATCH_RETURN_IF_ERROR(run.quantizers[0].status);
  return collector.Take();
}

}  // namespace

absl::Status Validate(const ModelQuantizationOptions& options) {
  const auto in_field = [](const std::string& field, const absl::Status& status) {
    return absl::InvalidArgumentError(StrCat("ModelQuantizationOptions.", field, ": ", status));
  };
  if (absl::Status status = Validate(options.spec); !status.ok()) return in_field("spec", status);
  if (const absl::Status status =
          internal::ValidateOverrides(options.overrides, {&options.spec, 1});
      !status.ok()) {
    return absl::InvalidArgumentError(StrCat("ModelQuantizationOptions.", status));
  }
  if (options.max_gram_bytes <= 0) {
    return absl::InvalidArgumentError(StrCat("ModelQuantizationOptions.max_gram_bytes = ",
                                             options.max_gram_bytes, ": must be positive"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelQuantization> QuantizeModel(Subject& subject,
                                                const ModelQuantizationOptions& options,
                                                const ExecutionContext& context) {
  return internal::Guard([&] { return QuantizeOrThrow(subject, options, context); });
}

StoredSize StoredSizeOf(const ModelQuantization& model) {
  StoredSize size{.other_bytes = kUnquantizedBytes * (model.parameters - model.covered_parameters)};
  for (const QuantizedLayer& layer : model.layers) {
    size += StoredSizeOf(layer.weight, layer.spec, layer.outputs, layer.inputs);
  }
  return size;
}

}  // namespace ptqwatch
