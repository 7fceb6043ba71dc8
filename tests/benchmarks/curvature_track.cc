// Cold and warm-started Lanczos along a training run.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "bench_curvature.h"
#include "curvature/hessian_operator.h"
#include "curvature/lanczos.h"
#include "ptqwatch/safetensors.h"
#include "report/str_cat.h"
#include "schedule.h"

namespace ptqwatch::benchmarks {
namespace {

using internal::Eigenpair;
using internal::HessianOperator;
using internal::LanczosOptions;
using internal::StrCat;
using internal::Vector;

struct Snapshot {
  int64_t step = 0;
  double learning_rate = 0;
  double top = 0;  // the eigenvalue to 0.1 %
  Weights weights;
};

// One way to find the eigenvalue, followed through all snapshots.
struct Strategy {
  std::string name;
  double residual_ratio;
  bool warm;
  Vector start = {};  // of a warm one: what the snapshot before gave
  int snapshots = 0;
  int products = 0;
  int most_products = 0;
  int unconverged = 0;
  double error = 0;  // relative, to the tight eigenvalue
  double worst_error = 0;
  double worst_residual = 0;
};

std::string Describe(const GptConfig& config) {
  return absl::StrFormat("width %d, layers %d, heads %d, length %d, %d batches of %d sequences, %s",
                         config.width, config.layers, config.heads, config.length, config.batches,
                         config.sequences,
                         config.all_parameters ? "all parameters" : "the blocks' matrices");
}

absl::StatusOr<double> TopEigenvalue(HessianOperator& hessian) {
  ExecutionContext context = ExecutionContext::Standalone();
  absl::StatusOr<Eigenpair> pair = ExtremeEigenpair(
      context, hessian, {}, {.residual_ratio = 1e-3, .max_products = 300, .max_basis = 100});
  if (!pair.ok()) return pair.status();
  if (!pair->converged) return absl::InternalError("no eigenvalue to 0.1 % in 300 products");
  return pair->value;
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
    ExecutionContext context = ExecutionContext::Standalone();
    auto surface = gpt.SurfaceAt(snapshot.weights);
    if (!surface.ok()) return surface.status();
    auto hessian = HessianOperator::Create(context, surface->get(), HessianMode::kRetainedGraph);
    if (!hessian.ok()) return hessian.status();
    absl::StatusOr<double> top = TopEigenvalue(**hessian);
    if (!top.ok()) return top.status();
    snapshot.top = *top;
  }
  return snapshots;
}

std::string NameInFile(size_t snapshot, const std::string& name) {
  return absl::StrFormat("%04d/%s", snapshot, name);
}

absl::Status Save(const std::string& path, const std::string& config,
                  const std::vector<std::string>& names, const std::vector<Snapshot>& snapshots) {
  std::vector<TensorSource> tensors;
  TensorMetadata metadata = {{"config", config}, {"snapshots", StrCat(snapshots.size())}};
  for (size_t i = 0; i < snapshots.size(); ++i) {
    metadata[NameInFile(i, "step")] = StrCat(snapshots[i].step);
    metadata[NameInFile(i, "learning_rate")] = absl::StrFormat("%.17g", snapshots[i].learning_rate);
    metadata[NameInFile(i, "top")] = absl::StrFormat("%.17g", snapshots[i].top);
    for (size_t j = 0; j < names.size(); ++j) {
      const at::Tensor tensor = snapshots[i].weights[j].contiguous();
      tensors.push_back(MakeTensorSource(
          NameInFile(i, names[j]), TensorDtype::kF32, tensor.sizes().vec(),
          std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes())));
    }
  }
  return WriteSafetensors(path, tensors, metadata);
}

absl::StatusOr<std::vector<Snapshot>> Load(const std::string& path, const std::string& config,
                                           const std::vector<std::string>& names,
                                           const Weights& like) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const auto number = [&](const std::string& key) -> absl::StatusOr<double> {
    const auto found = file->metadata().find(key);
    double value = 0;
    if (found != file->metadata().end() && absl::SimpleAtod(found->second, &value)) return value;
    return absl::InvalidArgumentError(StrCat("--load ", path, ": has no number ", key));
  };
  const auto written = file->metadata().find("config");
  if (written == file->metadata().end() || written->second != config) {
    return absl::InvalidArgumentError(StrCat(
        "--load ", path, ": made with \"",
        written == file->metadata().end() ? "?" : written->second, "\", now \"", config, "\""));
  }
  absl::StatusOr<double> count = number("snapshots");
  if (!count.ok()) return count.status();
  std::vector<Snapshot> snapshots(static_cast<size_t>(*count));
  for (size_t i = 0; i < snapshots.size(); ++i) {
    Snapshot& snapshot = snapshots[i];
    const absl::StatusOr<double> step = number(NameInFile(i, "step"));
    const absl::StatusOr<double> rate = number(NameInFile(i, "learning_rate"));
    const absl::StatusOr<double> top = number(NameInFile(i, "top"));
    for (const auto* value : {&step, &rate, &top}) {
      if (!value->ok()) return value->status();
    }
    snapshot.step = static_cast<int64_t>(*step);
    snapshot.learning_rate = *rate;
    snapshot.top = *top;
    for (size_t j = 0; j < names.size(); ++j) {
      absl::StatusOr<std::vector<float>> values = file->ReadFloats(NameInFile(i, names[j]));
      if (!values.ok()) return values.status();
      at::Tensor tensor = at::empty(like[j].sizes(), at::kFloat);
      if (std::ssize(*values) != tensor.numel()) {
        return absl::InvalidArgumentError(
            StrCat("--load ", path, ": ", names[j], " has another size: another --text?"));
      }
      std::memcpy(tensor.mutable_data_ptr(), values->data(), tensor.nbytes());
      snapshot.weights.push_back(std::move(tensor));
    }
  }
  return snapshots;
}

// ||Hv - value v|| / |value| by a product of its own.
absl::StatusOr<double> TrueResidual(HessianOperator& hessian, const Eigenpair& pair) {
  ExecutionContext context = ExecutionContext::Standalone();
  Vector product = hessian.space().Zero();
  if (absl::Status status = hessian.Apply(context, pair.vector, product); !status.ok()) {
    return status;
  }
  hessian.space().Axpy(-pair.value, pair.vector, product);
  return hessian.space().Norm(product) / std::abs(pair.value);
}

absl::Status Measure(Strategy& strategy, HessianOperator& hessian, double exact) {
  ExecutionContext context = ExecutionContext::Standalone();
  absl::StatusOr<Eigenpair> pair = ExtremeEigenpair(context, hessian, strategy.start,
                                                    {.residual_ratio = strategy.residual_ratio});
  if (!pair.ok()) return pair.status();
  const absl::StatusOr<double> residual = TrueResidual(hessian, *pair);
  if (!residual.ok()) return residual.status();
  const double error = std::abs(pair->value - exact) / std::abs(exact);
  std::printf(" | %2d %8.4g %7.4f %6.4f", pair->products, pair->value, *residual, error);
  // The first snapshot of a warm strategy is a cold one.
  if (!strategy.warm || strategy.start.defined()) {
    ++strategy.snapshots;
    strategy.products += pair->products;
    strategy.most_products = std::max(strategy.most_products, pair->products);
    strategy.unconverged += pair->converged ? 0 : 1;
    strategy.error += error;
    strategy.worst_error = std::max(strategy.worst_error, error);
    strategy.worst_residual = std::max(strategy.worst_residual, *residual);
  }
  if (strategy.warm) strategy.start = pair->vector;
  return absl::OkStatus();
}

void PrintAverages(const std::vector<Strategy>& strategies) {
  std::printf("\n%-10s %9s %14s %4s %11s %10s %11s %14s\n", "", "snapshots", "products/each",
              "most", "unconverged", "mean error", "worst error", "worst residual");
  for (const Strategy& s : strategies) {
    const double count = std::max(s.snapshots, 1);
    std::printf("%-10s %9d %14.2f %4d %11d %10.5f %11.5f %14.4f\n", s.name.c_str(), s.snapshots,
                s.products / count, s.most_products, s.unconverged, s.error / count, s.worst_error,
                s.worst_residual);
  }
}

}  // namespace

absl::Status TrackEigenvalue(const GptConfig& config, const TrackOptions& options) {
  at::NoGradGuard no_grad;
  absl::StatusOr<std::unique_ptr<GptUnderTest>> gpt = GptUnderTest::Create(config);
  if (!gpt.ok()) return gpt.status();
  absl::StatusOr<std::vector<Snapshot>> snapshots =
      options.load.empty() ? Train(**gpt, options)
                           : Load(options.load, Describe(config), (*gpt)->names(), (*gpt)->Copy());
  if (!snapshots.ok()) return snapshots.status();
  if (!options.save.empty()) {
    absl::Status saved = Save(options.save, Describe(config), (*gpt)->names(), *snapshots);
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
  for (const Strategy& strategy : strategies) std::printf(" | %-26s", strategy.name.c_str());
  std::printf("\n%35s", "");
  for (size_t i = 0; i < strategies.size(); ++i) {
    std::printf(" | %2s %8s %7s %6s", "Hv", "value", "resid.", "error");
  }
  std::printf("\n");
  for (const Snapshot& snapshot : *snapshots) {
    auto surface = (*gpt)->SurfaceAt(snapshot.weights);
    if (!surface.ok()) return surface.status();
    ExecutionContext context = ExecutionContext::Standalone();
    auto hessian = HessianOperator::Create(context, surface->get(), HessianMode::kRetainedGraph);
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
