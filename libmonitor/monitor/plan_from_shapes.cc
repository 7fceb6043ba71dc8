#include "ptqwatch/offline/plan_from_shapes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/glob.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "monitor/cost_model.h"
#include "monitor/governor.h"
#include "monitor/planner.h"

namespace ptqwatch {
namespace {

using internal::ModelShapes;
using internal::ProductShape;
using internal::StrCat;
using internal::StrFormat;

constexpr int64_t kHeadWidth = 64;

// Names that are the last part but one of a weight's: those of one row read the same input.
constexpr std::string_view kSharedInputs[][5] = {
    {"q_proj", "query", "wq", "q", "to_q"}, {"k_proj", "key", "wk", "k", "to_k"},
    {"v_proj", "value", "wv", "v", "to_v"}, {"gate_proj", "w1", "gate", "", ""},
    {"up_proj", "w3", "up", "", ""},
};

bool Matches(const std::vector<std::string>& globs, std::string_view name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return internal::GlobMatch(glob, name); });
}

// "layers.3.attention|qkv" for a matrix that shares its input with others of its module, else the
// whole name.
std::string InputOf(const std::string& name) {
  const size_t weight = name.rfind('.');
  const size_t module = weight == std::string::npos ? weight : name.rfind('.', weight - 1);
  if (module == std::string::npos) return name;
  const std::string_view part = std::string_view(name).substr(module + 1, weight - module - 1);
  for (size_t row = 0; row < std::size(kSharedInputs); ++row) {
    for (const std::string_view known : kSharedInputs[row]) {
      if (!known.empty() && part == known) {
        return StrCat(name.substr(0, module), row < 3 ? "|attention" : "|gated");
      }
    }
  }
  return name;
}

absl::Status CheckPositive(std::string_view name, double value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(name, " = ", value, ": must be positive"));
}

absl::Status Check(const ShapePlanOptions& options, const MachineRates& rates) {
  const std::pair<std::string_view, double> positive[] = {
      {"sequence_tokens", static_cast<double>(options.sequence_tokens)},
      {"batch_sequences", static_cast<double>(options.batch_sequences)},
      {"probe_batches", static_cast<double>(options.probe_batches)},
      {"calibration_batches", static_cast<double>(options.calibration_batches)},
      {"step_seconds", options.step_seconds},
      {"every", static_cast<double>(options.every)},
      {"max_overhead", options.max_overhead},
      {"max_gram_bytes", static_cast<double>(options.max_gram_bytes)},
      {"rates.product", rates.product},
      {"rates.copied_bytes", rates.copied_bytes}};
  for (const auto& [name, value] : positive) {
    PTQWATCH_RETURN_IF_ERROR(CheckPositive(name, value));
  }
  if (options.curvature_sequences < 0 || options.averaged_snapshots < 0 ||
      options.attention_heads < 0) {
    return absl::InvalidArgumentError(
        "curvature_sequences, averaged_snapshots and attention_heads: must be positive, or 0");
  }
  for (const MachineRates::OfWidth& width : rates.widths) {
    if (width.quantize.size() == options.quantizers.size()) continue;
    return absl::InvalidArgumentError("the rates were measured for other quantizers");
  }
  if (rates.widths.empty()) return absl::InvalidArgumentError("rates.widths is empty");
  return absl::OkStatus();
}

// How much the blocks attend, from the widths of their matrices: a fused qkv is [3 w, w]; apart,
// query and output are [w, w], and so are key and value unless heads share them.
void AddAttention(const ShapePlanOptions& options, ModelShapes& model) {
  std::map<int64_t, int64_t> inputs;
  for (const ProductShape& product : model.products) ++inputs[product.inputs];
  const auto most =
      std::max_element(inputs.begin(), inputs.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const int64_t width = most->first;
  int64_t fused = 0;
  int64_t square = 0;
  int64_t narrow = 0;
  for (const ProductShape& product : model.products) {
    if (product.inputs != width) continue;
    fused += product.outputs == 3 * width;
    square += product.outputs == width;
    narrow += product.outputs < width;
  }
  model.attention_blocks = fused > 0 ? fused : narrow > 0 ? square / 2 : square / 4;
  model.attention_width = width;
  model.attention_heads = options.attention_heads > 0 ? options.attention_heads
                                                      : std::max<int64_t>(1, width / kHeadWidth);
}

absl::StatusOr<ModelShapes> ModelOf(absl::Span<const TensorShape> tensors,
                                    const ShapePlanOptions& options) {
  ModelShapes model;
  std::map<std::string, int> grams;
  std::optional<ProductShape> largest_embedding;
  bool has_head = false;
  for (const TensorShape& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t side : tensor.shape) {
      if (side < 0 || (side > 0 && elements > INT64_MAX / 16 / side)) {
        return absl::InvalidArgumentError(StrCat("'", tensor.name, "' has an impossible shape"));
      }
      elements *= side;
    }
    model.parameters += elements;
    model.tensor_bytes += elements * tensor.element_bytes;
    if (tensor.shape.size() < 2 || elements == 0) continue;
    ProductShape product{.outputs = tensor.shape[0], .inputs = elements / tensor.shape[0]};
    if (Matches(options.heads, tensor.name)) {
      has_head = true;
    } else if (Matches(options.embeddings, tensor.name)) {
      if (!largest_embedding || product.outputs > largest_embedding->outputs) {
        largest_embedding = product;
      }
      continue;
    } else if (!Matches(options.exclude, tensor.name) &&
               8 * product.inputs <= options.max_gram_bytes / product.inputs) {
      const auto [gram, added] =
          grams.try_emplace(InputOf(tensor.name), static_cast<int>(model.gram_inputs.size()));
      if (added) model.gram_inputs.push_back(product.inputs);
      product.gram = gram->second;
    }
    model.products.push_back(product);
  }
  if (model.gram_inputs.empty()) {
    return absl::InvalidArgumentError("no matrix is left to quantize");
  }
  if (!has_head && largest_embedding) model.products.push_back(*largest_embedding);
  AddAttention(options, model);
  return model;
}

std::string Bytes(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  return value >= 1e9 ? StrFormat("%.2f GB", 1e-9 * value) : StrFormat("%.1f MB", 1e-6 * value);
}

std::string Seconds(double seconds) {
  return seconds >= 7200 ? StrFormat("%.1f h", seconds / 3600) : StrFormat("%.3g s", seconds);
}

std::vector<PlanPart> PartsOf(const ModelShapes& model, const internal::DataShapes& data,
                              const Plan& plan, const internal::PlanRange& range,
                              const internal::SnapshotCosts& costs,
                              const ShapePlanOptions& options) {
  const internal::SnapshotBytes bytes =
      internal::BytesFromShapes(model, data, plan, options.quantizers, options.max_gram_bytes);
  const double passes =
      static_cast<double>(internal::PassesOver(model.gram_inputs, options.max_gram_bytes).passes);
  const double calibration = static_cast<double>(plan.calibration_batches);
  const double probe = static_cast<double>(plan.probe_batches * (range.quantizers + 1));
  const double forward = (probe + calibration * passes) * costs.probe_batch;
  const double grams = calibration * (costs.calibration_batch - passes * costs.probe_batch);
  return {{"staging", 0, bytes.staging},
          {"replica", 0, bytes.replica},
          {"optimizer state, of Adam's kind", 0, bytes.optimizer},
          {"averages of snapshots", 0, bytes.averages},
          {"forward passes", forward, bytes.forward},
          {"Gram matrices", grams, bytes.grams},
          {"factors and codes", costs.quantize, bytes.factors},
          {"quantized weights", 0, bytes.quantized},
          {"curvature: products", CurvatureSeconds(plan, costs), bytes.vectors},
          {"curvature: graphs", 0, bytes.graphs}};
}

internal::Governor GovernorOf(const ShapePlanOptions& options) {
  internal::Governor governor(
      {.max_overhead = options.max_overhead, .cores_exceed_threads = options.spare_core}, 0);
  governor.Read(std::nullopt);
  return governor;
}

// How often a report comes, after which time, and what it costs.
void AddPace(const ShapePlanOptions& options, const internal::Governor& pace, int64_t staged_bytes,
             const MachineRates& rates, ShapePlan& plan) {
  const double interval = options.step_seconds * static_cast<double>(options.every);
  const double apart = std::max(interval, plan.snapshot_seconds / pace.long_run_share());
  const auto snapshots = static_cast<int64_t>(std::ceil(apart / interval - 1e-9));
  plan.report_every = snapshots * options.every;
  plan.report_seconds = plan.snapshot_seconds / pace.share();
  // Work on one of the trainer's cores makes a step take at most twice as long.
  const double lost = (pace.spare() ? 0 : plan.snapshot_seconds / 2) +
                      static_cast<double>(staged_bytes) / rates.copied_bytes;
  plan.overhead_ratio = lost / (interval * static_cast<double>(snapshots));
}

}  // namespace

absl::StatusOr<ShapePlan> PlanFromShapes(absl::Span<const TensorShape> tensors,
                                         const ShapePlanOptions& options,
                                         const MachineRates& rates) {
  PTQWATCH_RETURN_IF_ERROR(Check(options, rates));
  PTQWATCH_ASSIGN_OR_RETURN(const ModelShapes model, ModelOf(tensors, options));
  const internal::DataShapes data{.probe_batches = options.probe_batches,
                                  .calibration_batches = options.calibration_batches,
                                  .batch_sequences = options.batch_sequences,
                                  .sequence_tokens = options.sequence_tokens,
                                  .curvature_sequences = options.curvature_sequences,
                                  .averaged_snapshots = options.averaged_snapshots};
  const internal::PlanRange range =
      internal::RangeFromShapes(model, data, std::ssize(options.quantizers));
  const internal::SnapshotCosts costs =
      internal::CostsFromShapes(model, data, options.quantizers, options.max_gram_bytes, rates);
  const double interval = options.step_seconds * static_cast<double>(options.every);
  const internal::Governor pace = GovernorOf(options);
  const double allowed = internal::AllowedSeconds(pace.rests(), pace.long_run_share(), interval);
  const Plan chosen =
      options.adapt_plan ? internal::FitPlan(range, costs, allowed) : internal::FullPlan(range);

  ShapePlan plan;
  plan.parameters = model.parameters;
  plan.quantized_parameters = model.quantized_parameters();
  plan.quantized_layers = std::count_if(model.products.begin(), model.products.end(),
                                        [](const ProductShape& p) { return p.gram >= 0; });
  plan.plan = internal::DescribePlan(chosen, range);
  plan.parts = PartsOf(model, data, chosen, range, costs, options);
  plan.curvature_every = chosen.curvature_every;
  plan.snapshot_seconds = MeanSeconds(chosen, range, costs);
  plan.peak_bytes =
      internal::BytesFromShapes(model, data, chosen, options.quantizers, options.max_gram_bytes)
          .peak();
  AddPace(options, pace, model.tensor_bytes, rates, plan);
  return plan;
}

std::string ShapePlan::Describe() const {
  std::string text =
      StrFormat("%d parameters, %d of them (%.1f %%) in %d layers that are quantized\nplan: %s\n",
                parameters, quantized_parameters,
                100 * static_cast<double>(quantized_parameters) / static_cast<double>(parameters),
                quantized_layers, plan);
  text += StrFormat("  %-34s %12s %12s\n", "", "work", "memory");
  for (const PlanPart& part : parts) {
    if (part.seconds == 0 && part.bytes == 0) continue;
    text +=
        StrFormat("  %-34s %12s %12s\n", part.name, part.seconds > 0 ? Seconds(part.seconds) : "",
                  part.bytes > 0 ? Bytes(part.bytes) : "");
  }
  text += StrFormat("  %-34s %12s %12s\n",
                    curvature_every > 1 ? StrCat("a snapshot, curvature at 1 of ", curvature_every)
                                        : "a snapshot",
                    Seconds(snapshot_seconds), Bytes(peak_bytes));
  return text + StrFormat(
                    "a report every %d steps, about %s after its snapshot, costing %.2g %% of "
                    "training\n",
                    report_every, Seconds(report_seconds), 100 * overhead_ratio);
}

}  // namespace ptqwatch
