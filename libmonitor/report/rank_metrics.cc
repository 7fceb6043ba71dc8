#include <optional>
#include <string>

#include "report/metric_samples.h"

namespace ptqwatch::internal {
namespace {

using enum MetricType;

std::optional<int> Healthy(const RankStatus& rank) {
  return rank.health == Health::kOk || rank.health == Health::kStarting ? 1 : 0;
}

// The values are optional.
template <typename Value>
Samples PerRank(Input in, Value value_of) {
  Samples samples;
  for (const RankStatus& rank : in.status.ranks) {
    const auto value = value_of(rank);
    if (value) samples.push_back({{std::to_string(rank.rank)}, static_cast<double>(*value)});
  }
  return samples;
}

}  // namespace

std::vector<MetricInfo> RankMetrics() {
  return {
      {"ptqwatch_replicas_diverged",
       kGauge,
       "1 if the parameters of ranks differ, 0 if equal. Absent with one rank.",
       {},
       [](Input in) {
         const ReplicaStatus& replicas = in.status.replicas;
         return replicas.compared_step == 0 ? Samples{} : One(replicas.diverged ? 1.0 : 0.0);
       }},
      {"ptqwatch_replicas_diverged_step",
       kGauge,
       "First step at which ranks differed, with the first parameter and the ranks unlike most.",
       {"parameter", "rank"},
       [](Input in) {
         const ReplicaStatus& replicas = in.status.replicas;
         if (!replicas.diverged) return Samples{};
         return Samples{{{replicas.parameter, replicas.minority},
                         static_cast<double>(replicas.diverged_step)}};
       }},
      {"ptqwatch_rank_healthy",
       kGauge,
       "1 if the rank's monitor is healthy, else 0.",
       {"rank"},
       [](Input in) { return PerRank(in, Healthy); }},
      {"ptqwatch_rank_snapshot_step",
       kGauge,
       "Step of the rank's newest report.",
       {"rank"},
       [](Input in) {
         return PerRank(in, [](const RankStatus& rank) { return rank.snapshot_step; });
       }},
      {"ptqwatch_rank_reports_total",
       kCounter,
       "Reports of the rank.",
       {"rank"},
       [](Input in) {
         return PerRank(in,
                        [](const RankStatus& rank) { return std::optional(rank.reports_total); });
       }},
  };
}

}  // namespace ptqwatch::internal
