// Quantizes a checkpoint with the library alone: no monitor, no LibTorch.

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "calibration.h"
#include "flags.h"
#include "layer_plan.h"
#include "output.h"
#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/offline/safetensors.h"
#include "ptqwatch/quantizer.h"
#include "stop_on_signal.h"

namespace ptqwatch::tools {
namespace {

using internal::Message;
using internal::StrCat;
using internal::StrFormat;

constexpr int kFailed = 1;
constexpr int kLayersLeft = 3;

using SteadyClock = std::chrono::steady_clock;

void Print(std::string_view line) { std::cout << line << std::endl; }

struct LayerResult {
  LayerStatus status = LayerStatus::kOk;
  std::string detail;
  std::optional<double> of_rtn;        // loss / rtn_loss
  std::optional<double> output_error;  // loss / output_energy
  double seconds = 0;
  bool quantized = false;
};

std::optional<double> Ratio(std::optional<double> part, std::optional<double> whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return *part / *whole;
}

std::string Shown(std::optional<double> value) {
  return value ? StrFormat("%.4g", *value) : std::string("-");
}

std::string Shape(const LayerPlan& layer) { return StrFormat("%dx%d", layer.rows, layer.cols); }

absl::StatusOr<LayerResult> QuantizeLayer(const Flags& flags, const SafetensorsFile& weights,
                                          const LayerPlan& layer,
                                          std::optional<Calibration>* calibration, Output* output,
                                          const ExecutionContext& context) {
  const SteadyClock::time_point start = SteadyClock::now();
  const QuantizerSpec& spec = flags.SpecFor(layer.module);
  const GramStatistics* statistics = nullptr;
  if (calibration->has_value()) {
    PTQWATCH_ASSIGN_OR_RETURN(statistics, (*calibration)->Get(layer.inputs, context));
  }
  PTQWATCH_ASSIGN_OR_RETURN(const std::vector<float> weight, weights.ReadFloats(layer.tensor));
  PTQWATCH_ASSIGN_OR_RETURN(
      const QuantizedWeight quantized,
      Quantize({.data = weight.data(), .rows = layer.rows, .cols = layer.cols}, statistics, spec,
               context));
  LayerResult result{.status = quantized.status,
                     .detail = quantized.status_detail,
                     .of_rtn = Ratio(quantized.loss, quantized.rtn_loss),
                     .output_error = Ratio(quantized.loss, quantized.output_energy)};
  if (!quantized.codes.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(std::vector<PackedTensor> packed,
                              PackWeight(flags.format, spec, layer.rows, layer.cols, quantized));
    output->Add(layer, std::move(packed));
    result.quantized = true;
  }
  result.seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
  return result;
}

void ShowProgress(size_t index, size_t count, const LayerPlan& layer, const LayerResult& result) {
  std::cerr << StrFormat("layer %d/%d  %s  %s  loss %s of RTN's  %.2f s  %s%s", index + 1, count,
                         layer.module, Shape(layer), Shown(result.of_rtn), result.seconds,
                         ToString(result.status),
                         result.detail.empty() ? "" : StrCat(": ", result.detail))
            << std::endl;
}

void ShowTable(const std::vector<LayerPlan>& layers, const std::vector<LayerResult>& results) {
  size_t width = 5;
  for (const LayerPlan& layer : layers) width = std::max(width, layer.module.size());
  Print(StrFormat("%-*s %12s %14s %10s %9s %9s", static_cast<int>(width), "layer", "shape",
                  "status", "error", "of RTN's", "seconds"));
  for (size_t i = 0; i < results.size(); ++i) {
    const LayerResult& result = results[i];
    Print(StrFormat("%-*s %12s %14s %10s %9s %9.2f", static_cast<int>(width), layers[i].module,
                    Shape(layers[i]), ToString(result.status), Shown(result.output_error),
                    Shown(result.of_rtn), result.seconds));
  }
}

int Fail(const StopOnSignal& stop, const absl::Status& status) {
  if (stop.received()) {
    Warn("stopped; nothing was written");
    return stop.exit_code();
  }
  Warn(Message(status));
  return kFailed;
}

int Run(const Flags& flags) {
  const auto weights = SafetensorsFile::Open(flags.weights);
  if (!weights.ok()) return FailWithUsage(StrCat("--weights: ", weights.status()));
  std::optional<SafetensorsFile> inputs;
  if (!flags.inputs.empty()) {
    auto opened = SafetensorsFile::Open(flags.inputs);
    if (!opened.ok()) return FailWithUsage(StrCat("--inputs: ", opened.status()));
    inputs = *std::move(opened);
  }
  absl::StatusOr<Output> output = Output::Create(flags);
  if (!output.ok()) return FailWithUsage(Message(output.status()));
  absl::StatusOr<Plan> plan = MakePlan(flags, *weights, inputs ? &*inputs : nullptr);
  if (!plan.ok()) return FailWithUsage(Message(plan.status()));

  for (const std::string& module : plan->without_inputs) {
    Warn(StrCat("left unchanged: ", module, " has no inputs"));
  }
  ExecutionContext context;
  context.threads = flags.threads;
  const StopOnSignal stop(context.cancel);
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
  Print(StrFormat("%d layers quantized (%s), %d left unchanged; wrote %s", results.size() - failed,
                  Describe(flags.spec), left_out.size(), flags.out + "/model.safetensors"));
  if (failed == 0) return 0;
  Warn(StrFormat("%d layers could not be quantized", failed));
  return kLayersLeft;
}

}  // namespace
}  // namespace ptqwatch::tools

int main(int argc, char** argv) {
  ptqwatch::tools::Flags flags;
  if (const auto exit_code = ptqwatch::tools::ParseFlags(argc, argv, &flags)) {
    return *exit_code;
  }
  return ptqwatch::tools::Run(flags);
}
