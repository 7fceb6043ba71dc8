#include "ptqwatch/offline/quantize_model.h"

#include <chrono>
#include <exception>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/glob.h"
#include "base/strings.h"
#include "capture/capture_plan.h"
#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "ptqwatch/subject.h"
#include "snapshot/batches.h"
#include "snapshot/finite.h"
#include "snapshot/replica.h"

namespace ptqwatch {
namespace {

using internal::CapturePlan;
using internal::CoveredLayer;
using internal::Replica;
using internal::StrCat;

const QuantizerSpec& SpecFor(const ModelQuantizationOptions& options, std::string_view name) {
  for (const auto& [pattern, spec] : options.overrides) {
    if (internal::GlobMatch(pattern, name)) return spec;
  }
  return options.spec;
}

// Fills a ModelQuantization and tells the caller how far it is.
class Collector : public internal::QuantizationListener {
 public:
  Collector(const CapturePlan& plan, const internal::LayerSpecs& specs, const Replica& replica,
            const ModelQuantizationOptions& options, Clock* clock)
      : plan_(plan), specs_(specs), options_(options), clock_(clock), last_(clock->Monotonic()) {
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
  }

  void OnLayer(size_t, size_t index, MatrixView, const GramStatistics* statistics,
               QuantizedWeight weight) override {
    QuantizedLayer& layer = result_.layers[index];
    layer.spec = specs_[index];
    if (statistics != nullptr) {
      layer.tokens = statistics->tokens;
      layer.skipped_rows = statistics->skipped_rows;
    }
    layer.weight = std::move(weight);
    const auto now = clock_->Monotonic();
    const double seconds = std::chrono::duration<double>(now - std::exchange(last_, now)).count();
    if (options_.progress) {
      options_.progress({++done_, static_cast<int64_t>(plan_.layers.size()), layer.name, seconds});
    }
  }
  void OnDone(size_t, const absl::Status& status) override { status_ = status; }

  absl::StatusOr<ModelQuantization> Take() {
    if (!status_.ok()) return status_;
    return std::move(result_);
  }

 private:
  const CapturePlan& plan_;
  const internal::LayerSpecs& specs_;
  const ModelQuantizationOptions& options_;
  Clock* clock_;
  std::chrono::nanoseconds last_;
  int64_t done_ = 0;
  absl::Status status_;
  ModelQuantization result_;
};

absl::StatusOr<ModelQuantization> QuantizeOrThrow(Subject& subject,
                                                  const ModelQuantizationOptions& options,
                                                  const ExecutionContext& context) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
  at::NoGradGuard no_grad;
  if (subject.calibration().empty()) {
    return absl::InvalidArgumentError("the subject has no calibration batches");
  }
  absl::StatusOr<internal::TensorTable> live = internal::MakeTensorTable(subject.LiveTensors());
  if (!live.ok()) return live.status();
  const at::Device device = live->entries[0].tensor.device();
  for (const internal::TensorEntry& entry : live->entries) {
    if (entry.tensor.device() != device) {
      return absl::FailedPreconditionError(
          StrCat("tensors '", live->entries[0].name, "' and '", entry.name,
                 "' are on different devices; a model on several devices is not supported"));
    }
  }
  // A loss of NaN would say nothing about the closure.
  if (const std::string bad = internal::NonFiniteTensor(*live); !bad.empty()) {
    return absl::FailedPreconditionError(StrCat("the live model is not finite: ", bad));
  }
  absl::StatusOr<std::vector<Batch>> calibration =
      internal::CopyBatches(subject.calibration(), device, "calibration");
  if (!calibration.ok()) return calibration.status();
  // It begins with the live weights.
  absl::StatusOr<std::unique_ptr<Replica>> replica =
      Replica::Create(&subject, *live, {&calibration->front()});
  if (!replica.ok()) return replica.status();
  absl::StatusOr<CapturePlan> plan = internal::PlanCapture(**replica, calibration->front(),
                                                           options.layers, options.max_gram_bytes);
  if (!plan.ok()) return plan.status();

  internal::LayerSpecs specs;
  for (const CoveredLayer& layer : plan->layers) specs.push_back(SpecFor(options, layer.name));
  const internal::ModelQuantizer quantizer(
      **replica, *plan, *calibration,
      {.mode = options.calibration_mode, .max_gram_bytes = options.max_gram_bytes});
  Collector collector(*plan, specs, **replica, options, context.clock);
  quantizer.Run({specs}, collector, context);
  return collector.Take();
}

}  // namespace

absl::Status Validate(const ModelQuantizationOptions& options) {
  const auto in_field = [](const std::string& field, const absl::Status& status) {
    return absl::InvalidArgumentError(
        StrCat("ModelQuantizationOptions.", field, ": ", std::string(status.message())));
  };
  if (absl::Status status = Validate(options.spec); !status.ok()) return in_field("spec", status);
  for (const auto& [pattern, spec] : options.overrides) {
    if (absl::Status status = Validate(spec); !status.ok()) {
      return in_field(StrCat("overrides['", pattern, "']"), status);
    }
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
  try {
    return QuantizeOrThrow(subject, options, context);
  } catch (const c10::Error& error) {
    return absl::InternalError(StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace ptqwatch
