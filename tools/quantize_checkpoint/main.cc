// Quantizes a checkpoint with the library alone: no monitor, no LibTorch.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "calibration.h"
#include "console.h"
#include "layer_plan.h"
#include "output.h"
#include "parse_flags.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/offline/safetensors.h"
#include "ptqwatch/quantizer.h"
#include "quantize_flags.h"
#include "stop_signal.h"

namespace ptqwatch::examples {
namespace {

constexpr int kFailed = 1;
constexpr int kLayersLeft = 3;

using Clock = std::chrono::steady_clock;

// Cancels the work when a signal comes.
class SignalWatch {
 public:
  SignalWatch(const StopSignal& stop, CancelToken cancel)
      : thread_([this, &stop, cancel]() mutable {
          while (!done_ && !stop.WaitFor(std::chrono::milliseconds(50))) {
          }
          if (!done_) cancel.Cancel();
        }) {}
  ~SignalWatch() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

struct LayerResult {
  LayerStatus status = LayerStatus::kOk;
  std::string detail;
  std::optional<double> of_rtn;        // loss over the loss of RTN
  std::optional<double> output_error;  // loss over output energy
  double seconds = 0;
  bool quantized = false;
};

std::optional<double> Ratio(std::optional<double> part, std::optional<double> whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return *part / *whole;
}

std::string Shown(std::optional<double> value) {
  return value ? absl::StrFormat("%.4g", *value) : std::string("-");
}

std::string Shape(const LayerPlan& layer) {
  return absl::StrFormat("%dx%d", layer.rows, layer.cols);
}

absl::StatusOr<LayerResult> QuantizeLayer(const QuantizeFlags& flags,
                                          const SafetensorsFile& weights, const LayerPlan& layer,
                                          std::optional<Calibration>* calibration, Output* output,
                                          const ExecutionContext& context) {
  const Clock::time_point start = Clock::now();
  const GramStatistics* statistics = nullptr;
  if (calibration->has_value()) {
    const auto found = (*calibration)->Get(layer.inputs, context);
    if (!found.ok()) return found.status();
    statistics = *found;
  }
  const absl::StatusOr<std::vector<float>> weight = weights.ReadFloats(layer.tensor);
  if (!weight.ok()) return weight.status();
  const absl::StatusOr<QuantizedWeight> quantized =
      Quantize({.data = weight->data(), .rows = layer.rows, .cols = layer.cols}, statistics,
               flags.spec, context);
  if (!quantized.ok()) return quantized.status();
  LayerResult result{.status = quantized->status,
                     .detail = quantized->status_detail,
                     .of_rtn = Ratio(quantized->loss, quantized->rtn_loss),
                     .output_error = Ratio(quantized->loss, quantized->output_energy)};
  if (!quantized->codes.empty()) {
    auto packed = PackWeight(flags.format, flags.spec, layer.rows, layer.cols, *quantized);
    if (!packed.ok()) return packed.status();
    output->Add(layer, *std::move(packed));
    result.quantized = true;
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

void ShowProgress(size_t index, size_t count, const LayerPlan& layer, const LayerResult& result) {
  Console::Get().Warning(absl::StrFormat(
      "layer %d/%d  %s  %s  loss %s of RTN's  %.2f s  %s%s", index + 1, count, layer.module,
      Shape(layer), Shown(result.of_rtn), result.seconds, std::string(ToString(result.status)),
      result.detail.empty() ? "" : ": " + result.detail));
}

void ShowTable(const std::vector<LayerPlan>& layers, const std::vector<LayerResult>& results) {
  Console& console = Console::Get();
  size_t width = 5;
  for (const LayerPlan& layer : layers) width = std::max(width, layer.module.size());
  console.Line(absl::StrFormat("%-*s %12s %14s %10s %9s %9s", static_cast<int>(width), "layer",
                               "shape", "status", "error", "of RTN's", "seconds"));
  for (size_t i = 0; i < results.size(); ++i) {
    const LayerResult& result = results[i];
    console.Line(absl::StrFormat("%-*s %12s %14s %10s %9s %9.2f", static_cast<int>(width),
                                 layers[i].module, Shape(layers[i]),
                                 std::string(ToString(result.status)), Shown(result.output_error),
                                 Shown(result.of_rtn), result.seconds));
  }
}

int Fail(const StopSignal& stop, const absl::Status& status) {
  if (stop.requested()) {
    Console::Get().Warning("stopped; nothing was written");
    return stop.exit_code();
  }
  FailWithUsage(std::string(status.message()));
  return kFailed;
}

int Run(const QuantizeFlags& flags) {
  const auto weights = SafetensorsFile::Open(flags.weights);
  if (!weights.ok()) return FailWithUsage("--weights: " + std::string(weights.status().message()));
  std::optional<SafetensorsFile> inputs;
  if (!flags.inputs.empty()) {
    auto opened = SafetensorsFile::Open(flags.inputs);
    if (!opened.ok()) return FailWithUsage("--inputs: " + std::string(opened.status().message()));
    inputs = *std::move(opened);
  }
  absl::StatusOr<Output> output = Output::Create(flags);
  if (!output.ok()) return FailWithUsage(std::string(output.status().message()));
  absl::StatusOr<Plan> plan = MakePlan(flags, *weights, inputs ? &*inputs : nullptr);
  if (!plan.ok()) return FailWithUsage(std::string(plan.status().message()));

  for (const std::string& module : plan->without_inputs) {
    Console::Get().Warning(absl::StrCat("left as it is: ", module, " has no inputs"));
  }
  const StopSignal stop;
  ExecutionContext context;
  context.threads = flags.threads;
  const SignalWatch watch(stop, context.cancel);
  std::optional<Calibration> calibration;
  if (inputs) calibration.emplace(*inputs);
  std::vector<LayerResult> results;
  std::vector<std::string> left_out = plan->left_out;
  for (const LayerPlan& layer : plan->layers) {
    auto result = QuantizeLayer(flags, *weights, layer, &calibration, &*output, context);
    if (!result.ok()) return Fail(stop, result.status());
    ShowProgress(results.size(), plan->layers.size(), layer, *result);
    if (!result->quantized) left_out.push_back(layer.module);
    results.push_back(*std::move(result));
  }
  if (absl::Status written = output->Write(*weights, left_out, context.cancel); !written.ok()) {
    return Fail(stop, written);
  }
  ShowTable(plan->layers, results);
  const size_t failed = left_out.size() - plan->left_out.size();
  Console::Get().Line(absl::StrFormat("%d layers quantized (%s), %d left as they were; wrote %s",
                                      results.size() - failed, Describe(flags.spec),
                                      left_out.size(), flags.out + "/model.safetensors"));
  if (failed == 0) return 0;
  Console::Get().Warning(absl::StrFormat("%d layers could not be quantized", failed));
  return kLayersLeft;
}

}  // namespace
}  // namespace ptqwatch::examples

int main(int argc, char** argv) {
  ptqwatch::examples::QuantizeFlags flags;
  if (const auto exit_code = ptqwatch::examples::ParseQuantizeFlags(argc, argv, &flags)) {
    return *exit_code;
  }
  return ptqwatch::examples::Run(flags);
}
