// What a gradient, a gradient's graph and a product by every HessianMode cost, in time and memory.

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "absl/strings/str_format.h"
#include "bench_curvature.h"
#include "cpu_seconds.h"
#include "curvature/eigenpair.h"
#include "curvature/hessian_mode.h"
#include "curvature/hessian_operator.h"
#include "torch/csrc/autograd/autograd.h"

namespace ptqwatch::benchmarks {
namespace {

using internal::HessianOperator;
using internal::ReplicaSurface;
using internal::Vector;
using internal::VectorSpace;

constexpr HessianMode kModes[] = {HessianMode::kRetainedGraph, HessianMode::kFiniteDifference,
                                  HessianMode::kRecomputedGraph};
constexpr double kMegabyte = 1e6;

struct Seconds {
  double wall = 0;
  double cpu = 0;  // of this thread
};

// Adds what `work` takes to `series`.
template <typename Work>
absl::Status Timed(std::vector<Seconds>& series, Work&& work) {
  const auto wall = std::chrono::steady_clock::now();
  const double cpu = CpuSeconds();
  absl::Status status = work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - wall;
  series.push_back({took.count(), CpuSeconds() - cpu});
  return status;
}

// The plain gradient that everything is compared with: a forward and a backward pass, nothing kept.
absl::Status Gradient(ReplicaSurface& surface) {
  std::vector<at::Tensor> leaves;
  for (const auto& leaf : surface.leaves()) leaves.push_back(leaf.tensor);
  for (size_t i = 0; i < surface.batches(); ++i) {
    absl::StatusOr<at::Tensor> loss = surface.Loss(i, /*with_graph=*/true);
    if (!loss.ok()) return loss.status();
    torch::autograd::grad({*loss}, leaves);
  }
  return absl::OkStatus();
}

struct Costs {
  std::vector<Seconds> gradient;
  std::vector<Seconds> graph;
  std::vector<Seconds> products[std::size(kModes)];
};

absl::Status MeasureRound(ReplicaSurface& surface, const Vector& v, Vector& hv, Costs& costs) {
  ExecutionContext context;
  absl::Status status = Timed(costs.gradient, [&] { return Gradient(surface); });
  if (!status.ok()) return status;
  for (size_t i = 0; i < std::size(kModes); ++i) {
    std::unique_ptr<HessianOperator> hessian;
    const auto create = [&]() -> absl::Status {
      auto created = HessianOperator::Create(&surface, kModes[i], context);
      if (created.ok()) hessian = *std::move(created);
      return created.status();
    };
    status = kModes[i] == HessianMode::kRetainedGraph ? Timed(costs.graph, create) : create();
    if (!status.ok()) return status;
    // The second product, as most are: the first one of a finite difference looks for its step.
    if (status = hessian->Apply(v, hv, context); !status.ok()) return status;
    status = Timed(costs.products[i], [&] { return hessian->Apply(v, hv, context); });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void PrintRow(const std::string& what, const std::vector<Seconds>& series,
              const std::vector<Seconds>& gradient) {
  std::vector<double> wall;
  std::vector<double> cpu;
  std::vector<double> wall_ratios;
  std::vector<double> cpu_ratios;
  for (size_t i = 0; i < series.size(); ++i) {
    wall.push_back(1e3 * series[i].wall);
    cpu.push_back(1e3 * series[i].cpu);
    wall_ratios.push_back(series[i].wall / gradient[i].wall);
    cpu_ratios.push_back(series[i].cpu / gradient[i].cpu);
  }
  const auto least = [](const std::vector<double>& x) {
    return *std::min_element(x.begin(), x.end());
  };
  std::printf("%-28s %8.1f %8.1f %7.2f %7.2f %8.1f %8.1f %7.2f %7.2f\n", what.c_str(), Median(wall),
              least(wall), Median(wall_ratios), least(wall_ratios), Median(cpu), least(cpu),
              Median(cpu_ratios), least(cpu_ratios));
}

// A figure of /proc/self/status in bytes; nothing where it cannot be read.
std::optional<double> StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return 1024 * std::stod(line.substr(key.size() + 1));
  }
  return std::nullopt;
}

// How much more memory is resident at the peak of `work` than before it, as a process of its own
// sees it: a copy of this one, whose heap is trimmed and whose peak is set back first.
std::optional<double> PeakBytes(const std::function<absl::Status()>& work) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5 << std::flush;
    const std::optional<double> before = StatusBytes("VmRSS");
    const bool ok = work().ok();
    const std::optional<double> peak = StatusBytes("VmHWM");
    const double bytes = ok && before && peak ? *peak - *before : -1;
    const bool written = write(ends[1], &bytes, sizeof bytes) == sizeof bytes;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  double bytes = -1;
  const bool read_all = child > 0 && read(ends[0], &bytes, sizeof bytes) == sizeof bytes;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return read_all && bytes >= 0 ? std::optional<double>(bytes) : std::nullopt;
}

void PrintPeak(const std::string& what, const std::function<absl::Status()>& work) {
  const std::optional<double> bytes = PeakBytes(work);
  std::printf("%-28s %s\n", what.c_str(),
              bytes ? absl::StrFormat("%.1f MB", *bytes / kMegabyte).c_str() : "not known");
}

// ||d - Hv|| / ||Hv||, d the finite difference in place of the exact Hv.
absl::StatusOr<double> DifferenceError(ReplicaSurface& surface, const Vector& v) {
  ExecutionContext context;
  Vector products[2];
  for (size_t i = 0; i < 2; ++i) {
    products[i] = surface.space().Zero();
    auto hessian = HessianOperator::Create(
        &surface, i == 0 ? HessianMode::kRecomputedGraph : HessianMode::kFiniteDifference, context);
    if (!hessian.ok()) return hessian.status();
    absl::Status status = (*hessian)->Apply(v, products[i], context);
    if (!status.ok()) return status;
  }
  surface.space().Axpy(-1, products[0], products[1]);
  return surface.space().Norm(products[1]) / surface.space().Norm(products[0]);
}

absl::Status PrintDifferenceErrors(ReplicaSurface& surface, const Vector& random) {
  ExecutionContext context;
  Vector top;
  {
    auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
    if (!hessian.ok()) return hessian.status();
    auto pair = ExtremeEigenpair(**hessian, {}, {.residual_ratio = 0.01}, {}, context);
    if (!pair.ok()) return pair.status();
    top = pair->next.vector;
  }
  const absl::StatusOr<double> along_random = DifferenceError(surface, random);
  if (!along_random.ok()) return along_random.status();
  const absl::StatusOr<double> along_top = DifferenceError(surface, top);
  if (!along_top.ok()) return along_top.status();
  std::printf(
      "a finite difference is %.1e from the exact product along a random vector, %.1e along "
      "the top eigenvector\n",
      *along_random, *along_top);
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureCosts(const GptConfig& config, int64_t train_steps, int repeats) {
  at::NoGradGuard no_grad;
  absl::StatusOr<std::unique_ptr<GptUnderTest>> gpt = GptUnderTest::Create(config);
  if (!gpt.ok()) return gpt.status();
  (*gpt)->Train(train_steps, [](int64_t) { return kConstantRate; });
  auto created = (*gpt)->SurfaceAt((*gpt)->Copy());
  if (!created.ok()) return created.status();
  ReplicaSurface& surface = **created;
  const VectorSpace& space = surface.space();
  Vector v = space.Zero();
  Vector hv = space.Zero();
  space.FillRademacher(config.seed, v);

  std::printf("%s\n%lld parameters in the scope, %d rounds, one thread\n", Describe(config).c_str(),
              static_cast<long long>(space.dimension()), repeats);
  if (absl::Status status = PrintDifferenceErrors(surface, v); !status.ok()) return status;
  ExecutionContext context;
  const auto choice =
      internal::ChooseHessianMode(&surface, HessianMode::kRetainedGraph, INT64_MAX, context);
  if (!choice.ok()) return choice.status();
  std::printf(
      "\nmemory: one vector %.1f MB, the retained graph %s\n",
      static_cast<double>(space.bytes()) / kMegabyte,
      choice->graph_bytes
          ? absl::StrFormat("%.1f MB", static_cast<double>(*choice->graph_bytes) / kMegabyte)
                .c_str()
          : "not known");
  std::printf("peak above what was resident before (of a process of its own)\n");
  PrintPeak("  gradient", [&] { return Gradient(surface); });
  for (HessianMode mode : kModes) {
    PrintPeak("  " + std::string(ToString(mode)), [&] {
      auto hessian = HessianOperator::Create(&surface, mode, context);
      return hessian.ok() ? (*hessian)->Apply(v, hv, context) : hessian.status();
    });
  }

  Costs warm_up;
  if (absl::Status status = MeasureRound(surface, v, hv, warm_up); !status.ok()) return status;
  Costs costs;
  for (int i = 0; i < repeats; ++i) {
    if (absl::Status status = MeasureRound(surface, v, hv, costs); !status.ok()) return status;
  }
  std::printf("\n%-28s %33s %33s\n%-28s", "", "wall ms, in gradients of the round",
              "CPU ms, in gradients of the round", "");
  for (int i = 0; i < 2; ++i) std::printf(" %8s %8s %7s %7s", "median", "least", "median", "least");
  std::printf("\n");
  PrintRow("gradient", costs.gradient, costs.gradient);
  PrintRow("graph, built once", costs.graph, costs.gradient);
  for (size_t i = 0; i < std::size(kModes); ++i) {
    PrintRow("product, " + std::string(ToString(kModes[i])), costs.products[i], costs.gradient);
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::benchmarks
