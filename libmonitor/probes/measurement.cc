#include "probes/measurement.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/clone.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "c10/core/AutogradState.h"
#include "capture/layer_selection.h"
#include "capture/model_quantizer.h"
#include "probes/ptq_probe.h"
#include "snapshot/generator_guard.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {
namespace {

// Two FNV-1a streams: not cryptographic, but the same on every machine.
class Digest {
 public:
  void Add(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) {
      a_ = (a_ ^ bytes[i]) * 0x100000001b3ULL;
      b_ = (b_ + bytes[i] + 1) * 0xff51afd7ed558ccdULL;
      b_ ^= b_ >> 29;
    }
  }
  void Add(const std::string& text) { Add(text.c_str(), text.size() + 1); }
  void Add(int64_t value) { Add(&value, sizeof(value)); }
  void Add(const at::Tensor& tensor) {
    Add(ShapeText(tensor));
    Add(std::string(at::toString(tensor.scalar_type())));
    const at::Tensor host = tensor.detach().cpu().contiguous();
    Add(host.const_data_ptr(), host.nbytes());
  }
  std::string Hex() const { return absl::StrFormat("%016x%016x", a_, b_); }

 private:
  uint64_t a_ = 0xcbf29ce484222325ULL;
  uint64_t b_ = 0x9e3779b97f4a7c15ULL;
};

}  // namespace

Measurement::Measurement(const MonitorOptions& options) : options_(options) {
  if (options_.quantizers.empty()) {
    for (QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
      for (int bits : {3, 4}) {
        QuantizerSpec spec;
        spec.method = method;
        spec.bits = bits;
        options_.quantizers.push_back(spec);
      }
    }
  }
}

absl::StatusOr<std::unique_ptr<Measurement>> Measurement::Create(
    Subject& subject, const MonitorOptions& options, const CurvatureEngineOptions& engine) {
  at::NoGradGuard no_grad;
  std::unique_ptr<Measurement> measurement(new Measurement(options));
  ModelSessionOptions needed = {
      .probe = true,
      .calibration = true,
      .capture = CaptureRequest{.layers = options.layers, .max_gram_bytes = options.max_gram_bytes},
      .snapshots = true};
  if (options.curvature.enabled) {
    needed.curvature = CurvatureBatchesRequest{.micro_batch = engine.micro_batch};
  }
  PTQWATCH_ASSIGN_OR_RETURN(measurement->session_, ModelSession::Open(subject, needed));
  ModelSession& session = *measurement->session_;

  const auto begin = std::chrono::steady_clock::now();
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, session.replica().Losses(session.probe()[0]));
  measurement->seconds_a_batch_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  PTQWATCH_RETURN_IF_ERROR(SumByUnit(losses, session.probe()[0]).status());
  if (options.curvature.enabled) {
    GeneratorGuard generators;
    PTQWATCH_ASSIGN_OR_RETURN(measurement->curvature_,
                              CurvatureProbe::Create(session, options, engine));
    // The guard puts them back here; at a snapshot nothing would.
    if (generators.Moved()) {
      const std::string reason =
          "losses draws random numbers from a default generator when gradients are on; that would "
          "change the training run";
      if (engine.mode != HessianMode::kAuto) {
        return absl::FailedPreconditionError(StrCat("curvature: ", reason));
      }
      measurement->curvature_->Disable(reason);
    }
  }
  measurement->fingerprint_ = measurement->Fingerprint();
  return measurement;
}

void Measurement::Load(const Snapshot& snapshot) {
  session_->replica().Load(snapshot.tensors);
  at::NoGradGuard no_grad;
  optimizer_ = {};  // first, so that its memory serves again
  optimizer_ = snapshot.optimizer;
  if (!optimizer_.view) return;
  try {
    for (OptimizedParameter& parameter : optimizer_.view->parameters) {
      if (parameter.second_moment.defined()) {
        parameter.second_moment = parameter.second_moment.clone();
      }
    }
  } catch (const c10::Error& error) {
    // Short of memory: the weights are worth a report without it.
    optimizer_.view.reset();
    optimizer_.problem = error.what_without_backtrace();
  }
}

absl::StatusOr<ProbeState> Measurement::Run(const ProbeState& state, Report& report,
                                            std::vector<std::vector<Replica::Override>>* keep,
                                            const ExecutionContext& context) {
  report.probe_state_sequence = state.sequence;
  const ExecutionContext limited =
      options_.max_snapshot_time.count() > 0
          ? context.WithDeadline(context.clock->Monotonic() + options_.max_snapshot_time)
          : context;
  std::vector<std::vector<Replica::Override>> quantized;
  PtqProbe probe(options_, session_->plan(), session_->probe(), session_->calibration());
  absl::Status status = probe.Run(session_->replica(), report, quantized, limited);
  if (!status.ok()) return status;
  ProbeState next;
  next.sequence = report.sequence;
  if (curvature_ != nullptr) {
    status =
        curvature_->Run(session_->replica(), quantized, optimizer_, state, report, next, limited);
    if (!status.ok()) return status;
  }
  if (keep != nullptr) *keep = std::move(quantized);
  return next;
}

std::string Measurement::Fingerprint() const {
  Digest digest;
  const TensorTable& table = session_->replica().table();
  for (size_t i = 0; i < table.names.size(); ++i) {
    const at::Tensor& tensor = table.entries[static_cast<size_t>(table.index[i])].tensor;
    digest.Add(table.names[i]);
    digest.Add(ShapeText(tensor));
    digest.Add(std::string(at::toString(tensor.scalar_type())));
    digest.Add(int64_t{table.index[i]});
  }
  static const std::vector<Batch> none;
  const std::vector<Batch>& curvature_batches =
      curvature_ == nullptr ? none : curvature_->batches();
  for (const auto* batches : {&session_->probe(), &session_->calibration(), &curvature_batches}) {
    digest.Add(static_cast<int64_t>(batches->size()));
    for (const Batch& batch : *batches) {
      for (const at::Tensor& tensor : batch) {
        if (tensor.defined()) digest.Add(tensor);
      }
    }
  }
  if (curvature_ != nullptr) {
    const CurvatureOptions& curvature = options_.curvature;
    const CurvatureEngineOptions& engine = curvature_->engine();
    digest.Add(absl::StrFormat("%d %d %a %d %a %d", curvature.scope, engine.mode,
                               curvature.eigenvalue_residual_ratio, engine.max_eigenvalue_products,
                               curvature.trace_relative_stderr, engine.max_trace_probes));
    for (const std::string& glob : curvature.parameters) digest.Add(glob);
    digest.Add(absl::StrFormat("%d %d %d", curvature.top_eigenvalues, curvature.bottom_eigenvalue,
                               engine.max_vector_bytes));
  }
  for (const CoveredLayer& layer : session_->plan().layers) {
    digest.Add(layer.name);
    for (const QuantizerSpec& spec : options_.quantizers) {
      digest.Add(::ptqwatch::Describe(SpecForLayer(options_, spec, layer.name)));
    }
  }
  digest.Add(std::string(ToString(options_.calibration_mode)));
  digest.Add(absl::StrFormat("%a %d", options_.relative_stderr, options_.max_probe_tokens));
  digest.Add(static_cast<int64_t>(options_.seed));
  return digest.Hex();
}

std::pair<std::string, int64_t> Measurement::DescribeCalibration() const {
  const std::vector<LayerSpecs> specs = SpecsOfLayers(options_, session_->plan());
  const ModelQuantizer quantizer(
      session_->replica(), session_->plan(), session_->calibration(),
      {.mode = options_.calibration_mode, .max_gram_bytes = options_.max_gram_bytes});
  const bool one_shot = options_.calibration_mode == CalibrationMode::kOneShot;
  std::string text = absl::StrFormat("calibration: %s, %d batches\n",
                                     std::string(ToString(options_.calibration_mode)),
                                     session_->calibration().size());
  int64_t all = 0;
  const auto add = [&](int64_t passes, std::string_view whom) {
    if (passes == 0) return;
    all += passes;
    text +=
        StrCat("  ", passes, passes == 1 ? " pass" : " passes", " over them (",
               passes * std::ssize(session_->calibration()), " forward passes) for ", whom, "\n");
  };
  add(quantizer.SharedPasses(specs),
      one_shot ? "all quantizers together" : "the layer errors of what needs no calibration");
  for (size_t i = 0; i < specs.size(); ++i) {
    add(quantizer.OwnPasses(specs[i]), ::ptqwatch::Describe(options_.quantizers[i]));
  }
  return {text, all};
}

std::string Measurement::Describe() const {
  const double parameters = static_cast<double>(session_->replica().table().parameters());
  std::string text = absl::StrFormat(
      "%d of %d parameters are quantized (%.1f %%), %d layers with %d distinct inputs:\n",
      session_->plan().covered_parameters, session_->replica().table().parameters(),
      100.0 * static_cast<double>(session_->plan().covered_parameters) / parameters,
      session_->plan().layers.size(), session_->plan().gram_inputs.size());
  for (const CoveredLayer& layer : session_->plan().layers) {
    text += absl::StrFormat("  %-40s %d -> %d\n", layer.name, layer.inputs, layer.outputs);
  }
  text += "left in full precision:\n";
  for (const SkippedLayer& skipped : session_->plan().skipped) {
    text += absl::StrFormat(
        "  %-40s %d parameters (%.1f %%): %s\n", skipped.name, skipped.parameters,
        100.0 * static_cast<double>(skipped.parameters) / parameters, skipped.reason);
  }
  text += "quantizers:\n";
  for (const QuantizerSpec& spec : options_.quantizers) {
    text += StrCat("  ", ::ptqwatch::Describe(spec), "\n");
  }
  const auto [calibration, calibration_passes] = DescribeCalibration();
  text += calibration;
  if (curvature_ != nullptr) text += curvature_->Describe();
  // Cheap models stop at the token cap, so this is the upper end.
  const double passes = static_cast<double>(options_.quantizers.size() + 1);
  const double forward =
      seconds_a_batch_ *
      (passes * static_cast<double>(session_->probe().size()) +
       static_cast<double>(calibration_passes * std::ssize(session_->calibration())));
  int64_t grams = 0;
  for (const std::vector<int>& pass : session_->plan().Passes(options_.max_gram_bytes)) {
    int64_t held = 0;
    for (int gram : pass)
      held += GramBytes(session_->plan().gram_inputs[static_cast<size_t>(gram)]);
    grams = std::max(grams, held);
  }
  text += absl::StrFormat(
      "memory: %.1f MB replica, %.1f MB Gram matrices while measuring; about %.2g s of forward "
      "passes a snapshot when all probe batches are needed, timed with the trainer's threads\n",
      static_cast<double>(session_->replica().bytes()) / 1e6, static_cast<double>(grams) / 1e6,
      forward);
  return text;
}

}  // namespace ptqwatch::internal

// LibTorch's BLAS. Weak: a LibTorch without MKL does not have it.
extern "C" int MKL_Set_Num_Threads_Local(int threads) __attribute__((weak));

namespace ptqwatch::internal {

void InitMonitorThread() {
  // ATen sets a thread's OpenMP count at its first use; only after that does a smaller one stay.
  // at::set_num_threads would change it for the whole process.
  (void)at::get_num_threads();
  omp_set_num_threads(1);
  // That first use also gave this thread a count of its own in MKL, which outranks OpenMP's.
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(1);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

}  // namespace ptqwatch::internal
