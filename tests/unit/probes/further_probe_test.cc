#include "probes/further_probe.h"

#include <gmock/gmock.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "ranks/merge_reports.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace further_probe_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// 9 batches of 100 tokens. The watched quantizer is 4-bit GPTQ.
struct Net : testing::TanhNet {
  explicit Net(int64_t further = 0) {
    batches.clear();
    for (int64_t i = 0; i < 9; ++i) {
      batches.push_back(
          {testing::Waves({100, 16}, 2, 1000 * i), (at::arange(100, at::kLong) * (i + 3)) % 8});
    }
    options.curvature.enabled = false;
    options.averaging.enabled = false;
    options.noise_relative_norm = 0;
    // All batches.
    options.relative_stderr = 1e-9;
    options.absolute_stderr_ratio = 0;
    options.further_probe_sets = further;
  }
};

Report Measure(Net& net, const std::optional<Plan>& plan = std::nullopt) {
  const auto suite = net.Measure();
  EXPECT_TRUE(suite.ok()) << suite.status();
  return suite.ok() ? testing::MeasureReport(**suite, nullptr, {.plan = plan}) : Report();
}

std::vector<Report> MeasureAsRanks(int64_t ranks, int64_t further) {
  std::vector<Report> reports;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Net net(further);
    net.options.rank = rank;
    net.options.ranks = ranks;
    reports.push_back(Measure(net));
  }
  return reports;
}

TEST(FurtherProbe, PoolsTheUnitsOfAllSets) {
  Net whole;
  const Report one = Measure(whole);
  EXPECT_FALSE(one.pooled);
  Net cut(3);
  const Report report = Measure(cut);
  ASSERT_TRUE(report.pooled);
  const PooledLoss& pooled = *report.pooled;
  ASSERT_EQ(pooled.status, ProbeStatus::kOk) << pooled.status_detail;
  EXPECT_EQ(pooled.method, QuantizationMethod::kGptq);
  EXPECT_EQ(pooled.bits, 4);
  ASSERT_THAT(pooled.sets, SizeIs(4));
  EXPECT_EQ(pooled.sets[0].tokens, 300) << "the first set has the rest";
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(pooled.sets[i].tokens, 200);
  const QuantizationReport& expected = one.quantization[1];
  EXPECT_EQ(pooled.probe_tokens, expected.probe_tokens);
  EXPECT_NEAR(*pooled.delta_nats, *expected.delta_nats, 1e-12);
  EXPECT_NEAR(*pooled.delta_stderr_nats, *expected.delta_stderr_nats, 1e-12);
  EXPECT_NEAR(*pooled.error_ratio, *expected.error_ratio, 1e-12);
  EXPECT_NEAR(*pooled.error_ratio_stderr, *expected.error_ratio_stderr, 1e-12);
  EXPECT_LT(*pooled.delta_stderr_nats, 0.75 * *report.quantization[1].delta_stderr_nats);
  EXPECT_EQ(report.cost.count("further_probe_sets"), 1u);
}

TEST(FurtherProbe, LeavesAllElseOnTheFirstSet) {
  Net cut(2);
  Net first;
  const std::vector<Batch> probe(first.batches.begin(), first.batches.begin() + 3);
  const auto subject = MakeFunctionSubject(
      {.live = first.live, .losses = first.losses, .probe = probe, .calibration = first.batches});
  const auto suite = testing::OpenProbes(*subject, first.options);
  ASSERT_TRUE(suite.ok()) << suite.status();
  first.table = *MakeTensorTable(subject->LiveTensors());
  first.Load(**suite);
  const Report alone = Net::Run(**suite);
  const Report report = Measure(cut);
  EXPECT_EQ(report.quantization, alone.quantization);
  EXPECT_EQ(report.probe_loss_nats, alone.probe_loss_nats);
}

TEST(FurtherProbe, MergedRanksGiveTheBitsOfOne) {
  for (const int64_t further : {1, 4}) {
    Net net(further);
    const Report alone = Measure(net);
    ASSERT_EQ(alone.pooled->status, ProbeStatus::kOk) << alone.pooled->status_detail;
    for (int64_t ranks = 1; ranks <= 4; ++ranks) {
      const std::vector<Report> shares = MeasureAsRanks(ranks, further);
      if (ranks > 1 && further > 1) {
        for (const Report& share : shares) {
          EXPECT_EQ(share.pooled->status, ProbeStatus::kOtherRank) << "has all of it";
        }
      }
      EXPECT_EQ(MergeReports(shares, /*complete=*/true).pooled, alone.pooled)
          << further << " sets, " << ranks << " ranks";
    }
  }
}

TEST(FurtherProbe, NamesTheSetsThatADeadRankOwes) {
  std::vector<Report> shares = MeasureAsRanks(3, 4);
  const auto owns = [](const Report& report, size_t set) {
    return report.pooled->sets[set].status == ProbeStatus::kOk;
  };
  size_t dead = 0;
  while (!owns(shares.at(dead), 1)) ++dead;
  std::string owed;
  for (size_t set = 0; set < 5; ++set) {
    if (!owns(shares[dead], set)) continue;
    owed += StrCat(owed.empty() ? "" : "; ", "set ", set, ": left to rank ", dead);
  }
  shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(dead));
  const PooledLoss pooled = *MergeReports(shares, /*complete=*/false).pooled;
  EXPECT_EQ(pooled.status, ProbeStatus::kOtherRank);
  EXPECT_EQ(pooled.status_detail, owed);
  EXPECT_FALSE(pooled.delta_nats || pooled.error_ratio || pooled.probe_tokens != 0);
}

TEST(FurtherProbe, TakesTheKeptWeightsOrTheSame) {
  Net alone(2);
  Net with_curvature(2);
  with_curvature.options.curvature.enabled = true;
  EXPECT_EQ(Measure(alone).pooled, Measure(with_curvature).pooled);
}

TEST(FurtherProbe, StopsAtTheMostTokens) {
  Net net(2);
  net.options.max_probe_tokens = 150;
  const Report report = Measure(net);
  EXPECT_EQ(report.pooled->probe_tokens, 3 * 200) << "the batch that reaches it is the last";
}

TEST(FurtherProbe, IsLeftOutByNameIfThePlanHasNoTime) {
  Net net(2);
  const Report report = Measure(net, Plan{.probe_batches = 3});
  EXPECT_EQ(report.pooled->status, ProbeStatus::kDisabled);
  EXPECT_EQ(report.pooled->status_detail,
            "set 1: the plan has no time for it; set 2: the plan has no time for it");
  EXPECT_EQ(report.pooled->sets[0].status, ProbeStatus::kOk);
  EXPECT_FALSE(report.pooled->delta_nats);
  EXPECT_EQ(Measure(net, Plan{.probe_batches = 3, .further_probe_sets = 2}).pooled->status,
            ProbeStatus::kOk);
}

TEST(FurtherProbe, ALossThatIsNotFiniteIsAStatusOfItsSet) {
  Net net(2);
  auto broken = std::make_shared<bool>(false);
  const float last = net.batches[8][0].flatten()[0].item<float>();
  net.losses = [losses = net.losses, broken, last](const TensorMap& p, const Batch& b) {
    LossValues values = losses(p, b);
    if (*broken && b[0].flatten()[0].item<float>() == last) values.values = values.values / 0;
    return values;
  };
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  *broken = true;
  const Report report = Net::Run(**suite);
  EXPECT_EQ(report.pooled->status, ProbeStatus::kNonFinite);
  EXPECT_THAT(report.pooled->status_detail, AllOf(HasSubstr("set 2: "), HasSubstr("not finite")));
  EXPECT_EQ(report.pooled->sets[1].status, ProbeStatus::kOk);
  EXPECT_EQ(report.quantization[1].status, ProbeStatus::kOk);
}

TEST(FurtherProbe, CanBeSwitchedOff) {
  Net net(2);
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  EXPECT_THAT(testing::DescribeProbes(**suite),
              HasSubstr("further probe sets: 2 of 2 are measured here, of 3 batches each, with "));
  (*suite)->Disable("further_probe_sets", "it failed");
  const Report report = Net::Run(**suite);
  EXPECT_EQ(report.pooled->status, ProbeStatus::kDisabled);
  EXPECT_THAT(report.pooled->status_detail, HasSubstr("set 1: it failed"));
  Net without;
  const auto none = without.Measure();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(testing::DescribeProbes(**none), Not(HasSubstr("further")));
}

TEST(FurtherProbe, NeedsABatchForEachSet) {
  Net net(9);
  const absl::Status status = net.Measure().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "MonitorOptions.further_probe_sets = 9: needs more probe batches than that, and there "
            "are 9");
}

}  // namespace further_probe_test
}  // namespace ptqwatch::internal
