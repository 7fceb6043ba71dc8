// Cold and warm-started Lanczos along a training run.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "bench_curvature.h"
#include "curvature/hessian_operator.h"
#include "curvature/spectrum.h"
#include "schedule.h"
#include "weights_file.h"

namespace ptqwatch::benchmarks {
namespace {

using internal::EigenpairSearch;
using internal::HessianOperator;
using internal::StrCat;
using internal::Vector;

struct Snapshot {
  int64_t step = 0;
  double learning_rate = 0;
  double top = 0;  // the eigenvalue to 0.1 %
  Weights weights;
};

// Error that needs no interval.
constexpr double kNear = 0.03;

// One way to find the eigenvalue, followed through all snapshots.
struct Strategy {
  std::string name;
  double residual_ratio;
  bool warm;
  internal::VectorMap state = {};  // of a warm one: what the previous snapshot left
  int snapshots = 0;
  int products = 0;
  int most_products = 0;
  int unconverged = 0;
  double error = 0;  // relative, to the tight eigenvalue
  double worst_error = 0;
  double worst_residual = 0;
  int near = 0;                     // values within kNear of the tight one
  int sound = 0;                    // those, and those whose interval contains it
  std::vector<double> widths = {};  // of the interval, relative to the value
};

absl::StatusOr<double> TopEigenvalue(HessianOperator& hessian) {
  ExecutionContext context;
  absl::StatusOr<EigenpairSearch> search =
      ExtremeEigenpair(hessian, {}, {.residual_ratio = 1e-3, .max_products = 300}, {}, context);
  if (!search.ok()) return search.status();
  if (!search->pair.converged) return absl::InternalError("no eigenvalue to 0.1 % in 300 products");
  return search->pair.value;
}

absl::StatusOr<std::vector<Snapshot>> Train(GptUnderTest& gpt, const TrackOptions& options) {
  const int64_t steps = options.snapshots * options.spacing;
  const examples::Schedule schedule{.peak = options.peak,
                                    .steps = steps,
                                    .warmup_steps = std::min<int64_t>(300, steps / 10),
                                    .decay_steps = steps / 3};
  std::vector<Snapshot> snapshots;
  for (int64_t i = 1; i <= options.snapshots; ++i) {
    gpt.Train(options.spacing, [&](int64_t step) { return schedule.LearningRate(step); });
    Snapshot& snapshot = snapshots.emplace_back();
    snapshot.step = i * options.spacing;
    snapshot.learning_rate = schedule.LearningRate(snapshot.step - 1);
    snapshot.weights = gpt.Copy();
    ExecutionContext context;
    auto surface = gpt.SurfaceAt(snapshot.weights);
    if (!surface.ok()) return surface.status();
    auto hessian = HessianOperator::Create(surface->get(), HessianMode::kRetainedGraph, context);
    if (!hessian.ok()) return hessian.status();
    absl::StatusOr<double> top = TopEigenvalue(**hessian);
    if (!top.ok()) return top.status();
    snapshot.top = *top;
  }
  return snapshots;
}

std::string Prefix(size_t snapshot) { return absl::StrFormat("%04d/", snapshot); }

absl::Status Save(const std::string& path, const GptConfig& config,
                  const std::vector<std::string>& names, const std::vector<Snapshot>& snapshots) {
  std::vector<TensorSource> tensors;
  TensorMetadata metadata = {{"config", Describe(config)}, {"snapshots", StrCat(snapshots.size())}};
  for (size_t i = 0; i < snapshots.size(); ++i) {
    metadata[Prefix(i) + "step"] = StrCat(snapshots[i].step);
    metadata[Prefix(i) + "learning_rate"] = absl::StrFormat("%.17g", snapshots[i].learning_rate);
    metadata[Prefix(i) + "top"] = absl::StrFormat("%.17g", snapshots[i].top);
    AppendWeights(Prefix(i), names, snapshots[i].weights, tensors);
  }
  return WriteSafetensors(path, tensors, metadata);
}

absl::StatusOr<std::vector<Snapshot>> Load(const std::string& path, const GptConfig& config,
                                           const GptUnderTest& gpt) {
  absl::StatusOr<SafetensorsFile> file = OpenWeights("--load", path, config);
  if (!file.ok()) return file.status();
  absl::StatusOr<double> count = ReadNumber(*file, "snapshots");
  if (!count.ok()) return count.status();
  const Weights like = gpt.Copy();
  std::vector<Snapshot> snapshots(static_cast<size_t>(*count));
  for (size_t i = 0; i < snapshots.size(); ++i) {
    const absl::StatusOr<double> step = ReadNumber(*file, Prefix(i) + "step");
    const absl::StatusOr<double> rate = ReadNumber(*file, Prefix(i) + "learning_rate");
    const absl::StatusOr<double> top = ReadNumber(*file, Prefix(i) + "top");
    for (const auto* value : {&step, &rate, &top}) {
      if (!value->ok()) return value->status();
    }
    absl::StatusOr<Weights> weights = ReadWeights(*file, Prefix(i), gpt.names(), like);
    if (!weights.ok()) return weights.status();
    snapshots[i] = {static_cast<int64_t>(*step), *rate, *top, *std::move(weights)};
  }
  return snapshots;
}

absl::Status Measure(Strategy& strategy, HessianOperator& hessian, double exact) {
  ExecutionContext context;
  // The same start as in a monitor.
  const internal::WarmStart start =
      internal::WarmStartFrom(internal::WithGradient(strategy.state, hessian.gradient()), "top.0");
  absl::StatusOr<EigenpairSearch> search =
      ExtremeEigenpair(hessian, start, {.residual_ratio = strategy.residual_ratio}, {}, context);
  if (!search.ok()) return search.status();
  const HessianEigenpair& pair = search->pair;
  const absl::StatusOr<double> residual = TrueResidual(hessian, {pair.vector}, pair.value);
  if (!residual.ok()) return residual.status();
  const double error = std::abs(pair.value - exact) / std::abs(exact);
  const double width = (pair.bound - pair.value) / std::abs(pair.value);
  std::printf(" | %2d %8.4g %6.4f %7.4f %6.4f", pair.products, pair.value, width, *residual, error);
  // The first snapshot of a warm strategy is a cold one.
  if (!strategy.warm || !strategy.state.empty()) {
    ++strategy.snapshots;
    strategy.products += pair.products;
    strategy.most_products = std::max(strategy.most_products, pair.products);
    strategy.unconverged += pair.converged ? 0 : 1;
    strategy.error += error;
    strategy.worst_error = std::max(strategy.worst_error, error);
    strategy.worst_residual = std::max(strategy.worst_residual, *residual);
    strategy.near += error <= kNear ? 1 : 0;
    strategy.sound += error <= kNear || (pair.value <= exact && exact <= pair.bound) ? 1 : 0;
    strategy.widths.push_back(width);
  }
  if (strategy.warm) internal::KeepForNext(search->next, "top.0", strategy.state);
  return absl::OkStatus();
}

void PrintAverages(const std::vector<Strategy>& strategies) {
  std::printf("\n%-10s %9s %14s %4s %11s %10s %11s %14s %6s %6s %12s\n", "", "snapshots",
              "products/each", "most", "unconverged", "mean error", "worst error", "worst residual",
              "near", "sound", "median width");
  for (const Strategy& s : strategies) {
    const double count = std::max(s.snapshots, 1);
    std::vector<double> widths = s.widths;
    std::sort(widths.begin(), widths.end());
    std::printf("%-10s %9d %14.2f %4d %11d %10.5f %11.5f %14.4f %6d %6d %12.4f\n", s.name.c_str(),
                s.snapshots, s.products / count, s.most_products, s.unconverged, s.error / count,
                s.worst_error, s.worst_residual, s.near, s.sound,
                widths.empty() ? 0 : widths[widths.size() / 2]);
  }
}

}  // namespace

absl::StatusOr<double> TrueResidual(internal::SymmetricOperator& hessian, const Vector& v,
                                    double value) {
  ExecutionContext context;
  Vector product = hessian.space().Zero();
  if (absl::Status status = hessian.Apply(v, product, context); !status.ok()) return status;
  hessian.space().Axpy(-value, v, product);
  return hessian.space().Norm(product) / std::abs(value);
}

absl::Status TrackEigenvalue(const GptConfig& config, const TrackOptions& options) {
  at::NoGradGuard no_grad;
  absl::StatusOr<std::unique_ptr<GptUnderTest>> gpt = GptUnderTest::Create(config);
  if (!gpt.ok()) return gpt.status();
  absl::StatusOr<std::vector<Snapshot>> snapshots =
      options.load.empty() ? Train(**gpt, options) : Load(options.load, config, **gpt);
  if (!snapshots.ok()) return snapshots.status();
  if (!options.save.empty()) {
    absl::Status saved = Save(options.save, config, (*gpt)->names(), *snapshots);
    if (!saved.ok()) return saved;
  }

  std::vector<Strategy> strategies;
  for (double residual : options.residuals) {
    for (bool warm : {false, true}) {
      if (!warm && options.warm_only) continue;
      strategies.push_back(
          {.name = absl::StrFormat("%s %g %%", warm ? "warm" : "cold", 100 * residual),
           .residual_ratio = residual,
           .warm = warm});
    }
  }
  std::printf("%s\n%8s %8s %7s %9s", Describe(config).c_str(), "step", "lr", "loss", "top eig");
  for (const Strategy& strategy : strategies) std::printf(" | %-33s", strategy.name.c_str());
  std::printf("\n%35s", "");
  for (size_t i = 0; i < strategies.size(); ++i) {
    std::printf(" | %2s %8s %6s %7s %6s", "Hv", "value", "width", "resid.", "error");
  }
  std::printf("\n");
  for (const Snapshot& snapshot : *snapshots) {
    auto surface = (*gpt)->SurfaceAt(snapshot.weights);
    if (!surface.ok()) return surface.status();
    ExecutionContext context;
    auto hessian = HessianOperator::Create(surface->get(), HessianMode::kRetainedGraph, context,
                                           /*rough_differences=*/true);
    if (!hessian.ok()) return hessian.status();
    std::printf("%8lld %8.2e %7.4f %9.5g", static_cast<long long>(snapshot.step),
                snapshot.learning_rate, (*hessian)->loss(), snapshot.top);
    for (Strategy& strategy : strategies) {
      if (absl::Status status = Measure(strategy, **hessian, snapshot.top); !status.ok()) {
        return status;
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  PrintAverages(strategies);
  return absl::OkStatus();
}

}  // namespace ptqwatch::benchmarks
