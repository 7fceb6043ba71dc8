#include "probes/weight_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty_like.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cuda/kernels/vector_kernels.h"
#include "notices/probe_outcome.h"
#include "probes/loss_pairs.h"
#include "probes/paired_loss.h"
#include "ptqwatch/report.h"
#include "quantize/kernels/parallel.h"

namespace ptqwatch::internal {
namespace {

// Elements between two looks at the context: well under a millisecond of drawing. Even, so that a
// pair is in one block.
constexpr int64_t kNoiseBlock = 1 << 15;
// Drawing a number takes as long as about this many operations of a loop.
constexpr double kFlopPerNumber = 500;

double MeanSquare(const float* w, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(w[i]) * w[i];
  return sum / static_cast<double>(count);
}

// Two independent normal numbers from a random word (Box and Muller 1958).
std::pair<float, float> NormalPair(uint64_t word) {
  constexpr float kScale = 0x1p-32F;
  constexpr float kTwoPi = 6.2831853F;
  const float u = (static_cast<float>(word >> 32) + 0.5F) * kScale;
  const float angle = kTwoPi * kScale * static_cast<float>(word & 0xffffffffU);
  const float radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Sums of changes and of weights over a cluster.
struct NoiseCluster {
  double change = 0;
  double weight = 0;
};

double VarianceOf(absl::Span<const NoiseCluster> clusters) {
  std::vector<double> changes;
  std::vector<double> weights;
  for (const NoiseCluster& cluster : clusters) {
    changes.push_back(cluster.change);
    weights.push_back(cluster.weight);
  }
  const double error = EstimateRatio(changes, weights).stderr_value;
  return error * error;
}

// Adds the paired changes of all evaluations to their clusters. Errors as LossPairs::Add.
absl::Status FillClusters(const NoisePlan& plan, absl::Span<const UnitLosses> full,
                          absl::Span<const UnitLosses> noisy, std::vector<NoiseCluster>& draws,
                          std::vector<NoiseCluster>& units, std::vector<NoiseCluster>& both) {
  draws.resize(plan.draws);
  std::vector<size_t> first_unit;
  for (const UnitLosses& losses : full) {
    first_unit.push_back(units.size());
    units.resize(units.size() + losses.sum.size());
  }
  for (size_t e = 0; e < plan.evaluations; ++e) {
    const UnitLosses& losses = full[e % plan.batches];
    LossPairs pairs;
    PTQWATCH_RETURN_IF_ERROR(pairs.Add(losses, noisy[e]));
    for (size_t unit = 0; unit < losses.sum.size(); ++unit) {
      const NoiseCluster one{noisy[e].sum[unit] - losses.sum[unit], losses.weight[unit]};
      both.push_back(one);
      for (NoiseCluster* cluster :
           {&draws[e % plan.draws], &units[first_unit[e % plan.batches] + unit]}) {
        cluster->change += one.change;
        cluster->weight += one.weight;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

NoisePlan::NoisePlan(size_t number_of_batches)
    : batches(number_of_batches), evaluations(number_of_batches) {
  while (batches > 0 && evaluations < kFewestDraws) evaluations += batches;
  draws = std::min(evaluations, kMostDraws);
}

absl::StatusOr<at::Tensor> NoisyWeight(const at::Tensor& weight, double relative_norm,
                                       std::string_view layer, size_t draw,
                                       const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  const at::Tensor from = weight.to(at::Device(at::kCPU), at::kFloat).contiguous();
  at::Tensor noisy = at::empty_like(from);
  const float* const w = from.const_data_ptr<float>();
  float* const out = noisy.mutable_data_ptr<float>();
  const int64_t count = from.numel();
  const uint64_t seed = context.seeds.Seed(StrCat("noise ", layer), draw);
  const auto scale = static_cast<float>(relative_norm * std::sqrt(MeanSquare(w, count)));
  ThreadTeam team(kFlopPerNumber * static_cast<double>(count), context);
  PTQWATCH_RETURN_IF_ERROR(team.ForEach(
      (count + kNoiseBlock - 1) / kNoiseBlock,
      [&](int, int64_t block, const ExecutionContext& own) -> absl::Status {
        PTQWATCH_RETURN_IF_ERROR(own.Checkpoint());
        const int64_t end = std::min(count, (block + 1) * kNoiseBlock);
        for (int64_t i = block * kNoiseBlock; i < end; i += 2) {
          const auto [one, other] = NormalPair(RandomWord(seed, static_cast<uint64_t>(i / 2)));
          out[i] = w[i] + scale * one;
          if (i + 1 < count) out[i + 1] = w[i + 1] + scale * other;
        }
        return absl::OkStatus();
      }));
  return noisy;
}

NoiseReport CompareNoise(double relative_norm, absl::Span<const UnitLosses> full,
                         absl::Span<const UnitLosses> noisy) {
  const NoisePlan plan(full.size());
  NoiseReport report;
  report.relative_norm = relative_norm;
  report.draws = static_cast<int64_t>(plan.draws);
  std::vector<NoiseCluster> draws;
  std::vector<NoiseCluster> units;
  std::vector<NoiseCluster> both;
  const absl::Status status = FillClusters(plan, full, noisy, draws, units, both);
  report.status = ProbeStatusOf(status);
  if (!status.ok()) {
    report.status_detail =
        absl::IsDataLoss(status) ? "the loss under noise is not finite" : StrCat(status);
    return report;
  }
  NoiseCluster all;
  for (const NoiseCluster& cluster : draws) {
    all.change += cluster.change;
    all.weight += cluster.weight;
  }
  if (!(all.weight > 0)) {
    report.status = ProbeStatus::kFailed;
    report.status_detail = "every probe token is masked out";
    return report;
  }
  report.delta_nats = all.change / all.weight;
  const double by_draw = VarianceOf(draws);
  const double variance = std::max(by_draw, by_draw + VarianceOf(units) - VarianceOf(both));
  if (std::isfinite(variance)) report.delta_stderr_nats = std::sqrt(variance);
  for (const UnitLosses& losses : full) report.probe_tokens += losses.tokens;
  return report;
}

}  // namespace ptqwatch::internal
