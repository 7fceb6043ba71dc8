// Our side of compare_curvature: a model and its batch in a file, and what the engine makes of it.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "base/strings.h"
#include "bench_curvature.h"
#include "cpu_seconds.h"
#include "curvature/hessian_mode.h"
#include "curvature/hessian_operator.h"
#include "curvature/hutchinson.h"
#include "curvature/spectrum.h"
#include "weights_file.h"

namespace ptqwatch::benchmarks {
namespace {

using internal::EigenpairSearch;
using internal::HessianOperator;
using internal::StrCat;
using internal::Vector;

constexpr char kBefore[] = "before/";
constexpr char kNow[] = "now/";
constexpr int64_t kWarmSteps = 100;
constexpr int kProductsAtATime = 3;

class Clock {
 public:
  double Wall() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }
  double Cpu() const { return CpuSeconds() - cpu_; }

 private:
  const std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  const double cpu_ = CpuSeconds();
};

// Finds the top eigenpair, graph and gradient included in the time, and prints it as JSON.
absl::StatusOr<EigenpairSearch> MeasureEigenpair(internal::ReplicaSurface& surface,
                                                 const char* name, HessianMode mode,
                                                 bool rough_differences,
                                                 const internal::VectorMap& state, double goal,
                                                 bool print) {
  ExecutionContext context;
  const Clock clock;
  auto hessian = HessianOperator::Create(&surface, mode, context, rough_differences);
  if (!hessian.ok()) return hessian.status();
  const internal::WarmStart start =
      internal::WarmStartFrom(internal::WithGradient(state, (*hessian)->gradient()), "top.0");
  absl::StatusOr<EigenpairSearch> search =
      ExtremeEigenpair(**hessian, start, {.residual_ratio = goal}, {}, context);
  if (!search.ok()) return search.status();
  const HessianEigenpair& pair = search->pair;
  const double wall = clock.Wall();
  const double cpu = clock.Cpu();
  absl::StatusOr<double> residual = TrueResidual(**hessian, {pair.vector}, pair.value);
  if (!residual.ok()) return residual.status();
  if (print) {
    std::printf(
        ",\n  {\"name\": \"%s\", \"goal\": %g, \"value\": %.9g, \"bound\": %.9g, "
        "\"residual\": %.6g, \"products\": %d, \"cpu_seconds\": %.6f, \"wall_seconds\": %.6f}",
        name, goal, pair.value, pair.bound, *residual, pair.products, cpu, wall);
  }
  return search;
}

// The least CPU seconds of a finite-difference product with a random vector.
struct ProductSeconds {
  double central = HUGE_VAL;
  double one_sided = HUGE_VAL;

  absl::Status Measure(internal::ReplicaSurface& surface) {
    ExecutionContext context;
    auto hessian = HessianOperator::Create(&surface, HessianMode::kFiniteDifference, context);
    if (!hessian.ok()) return hessian.status();
    Vector v = surface.space().Zero();
    surface.space().FillRademacher(1, v);
    Vector hv = surface.space().Zero();
    for (int i = 0; i < kProductsAtATime; ++i) {
      const Clock both;
      absl::Status status = (*hessian)->Apply(v, hv, context);
      central = std::min(central, both.Cpu());
      const Clock one;
      status.Update((*hessian)->ApplyRoughly(v, hv, context));
      one_sided = std::min(one_sided, one.Cpu());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

absl::Status MeasureTrace(internal::ReplicaSurface& surface, int probes) {
  ExecutionContext context;
  const Clock clock;
  auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
  if (!hessian.ok()) return hessian.status();
  const std::vector<double> weights(surface.space().parts().size(), 1.0);
  const auto trace =
      EstimateTrace(**hessian, weights, {},
                    {.relative_stderr = 0, .min_probes = probes, .max_probes = probes}, context);
  if (!trace.ok()) return trace.status();
  std::printf(
      ",\n  {\"name\": \"trace\", \"value\": %.9g, \"stderr\": %.6g, \"products\": %d, "
      "\"cpu_seconds\": %.6f, \"wall_seconds\": %.6f}",
      trace->trace, trace->trace_stderr, trace->probes, clock.Cpu(), clock.Wall());
  return absl::OkStatus();
}

}  // namespace

absl::Status ExportModel(const GptConfig& config, const std::string& path, int64_t train_steps) {
  absl::StatusOr<std::unique_ptr<GptUnderTest>> gpt = GptUnderTest::Create(config);
  if (!gpt.ok()) return gpt.status();
  const auto rate = [](int64_t) { return kConstantRate; };
  const int64_t last = std::min(train_steps, kWarmSteps);
  (*gpt)->Train(train_steps - last, rate);
  std::vector<TensorSource> tensors;
  AppendWeights(kBefore, (*gpt)->names(), (*gpt)->Copy(), tensors);
  (*gpt)->Train(last, rate);
  AppendWeights(kNow, (*gpt)->names(), (*gpt)->Copy(), tensors);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> targets;
  for (const Batch& batch : (*gpt)->curvature_batches()) {
    inputs.push_back(batch[0]);
    targets.push_back(batch[1]);
  }
  tensors.push_back(MakeSource("inputs", at::cat(inputs)));
  tensors.push_back(MakeSource("targets", at::cat(targets)));
  return WriteSafetensors(path, tensors,
                          {{"config", Describe(config)},
                           {"heads", StrCat(config.heads)},
                           {"sequences", StrCat(config.sequences)},
                           {"scope", config.all_parameters ? "all" : "blocks"}});
}

absl::Status MeasureModel(const GptConfig& config, const std::string& path, int trace_probes) {
  at::NoGradGuard no_grad;
  absl::StatusOr<SafetensorsFile> file = OpenWeights("--measure", path, config);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::unique_ptr<GptUnderTest>> gpt = GptUnderTest::Create(config);
  if (!gpt.ok()) return gpt.status();
  const Weights like = (*gpt)->Copy();
  absl::StatusOr<Weights> before = ReadWeights(*file, kBefore, (*gpt)->names(), like);
  if (!before.ok()) return before.status();
  absl::StatusOr<Weights> now = ReadWeights(*file, kNow, (*gpt)->names(), like);
  if (!now.ok()) return now.status();

  // Warm starts come from a cold search at the earlier weights, which also warms up the allocator
  // and the BLAS.
  constexpr double kGoals[] = {0.05, 0.02};
  std::vector<internal::VectorMap> starts;
  {
    auto surface = (*gpt)->SurfaceAt(*before);
    if (!surface.ok()) return surface.status();
    for (double goal : kGoals) {
      absl::StatusOr<EigenpairSearch> search =
          MeasureEigenpair(**surface, "", HessianMode::kRetainedGraph, false, {}, goal, false);
      if (!search.ok()) return search.status();
      internal::KeepForNext(search->next, "top.0", starts.emplace_back());
    }
  }
  auto surface = (*gpt)->SurfaceAt(*now);
  if (!surface.ok()) return surface.status();
  double loss = 0;
  for (size_t i = 0; i < (*surface)->batches(); ++i) {
    absl::StatusOr<at::Tensor> part = (*surface)->Loss(i, /*with_graph=*/false);
    if (!part.ok()) return part.status();
    loss += part->item<double>();
  }
  std::printf("[{\"name\": \"model\", \"loss\": %.9g, \"parameters\": %lld}", loss,
              static_cast<long long>((*surface)->space().dimension()));
  // As a monitor does once, when it is created.
  const auto choice = internal::ChooseHessianMode(surface->get(), HessianMode::kRetainedGraph,
                                                  INT64_MAX, ExecutionContext());
  if (!choice.ok()) return choice.status();
  // Between the searches, because the machine's speed changes over seconds.
  ProductSeconds product;
  for (size_t i = 0; i < std::size(kGoals); ++i) {
    const struct {
      const char* name;
      HessianMode mode;
      internal::VectorMap start;
    } runs[] = {{"cold", HessianMode::kRetainedGraph, {}},
                {"warm", HessianMode::kRetainedGraph, starts[i]},
                {"cold_difference", HessianMode::kFiniteDifference, {}}};
    for (const auto& run : runs) {
      const auto pair = MeasureEigenpair(**surface, run.name, run.mode, choice->rough_differences,
                                         run.start, kGoals[i], true);
      if (!pair.ok()) return pair.status();
      if (absl::Status status = product.Measure(**surface); !status.ok()) return status;
    }
  }
  std::printf(
      ",\n  {\"name\": \"product\", \"central_cpu_seconds\": %.6f, \"one_sided_cpu_seconds\": "
      "%.6f}",
      product.central, product.one_sided);
  if (absl::Status status = MeasureTrace(**surface, trace_probes); !status.ok()) return status;
  std::printf("]\n");
  return absl::OkStatus();
}

}  // namespace ptqwatch::benchmarks
