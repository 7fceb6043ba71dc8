#include "ranks/merge_reports.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/rank_reports.h"

namespace ptqwatch::internal {
namespace merge_reports_test {

using testing::ShareOf;
using testing::WholeReport;

std::vector<Report> Shares(const Report& whole, int64_t ranks) {
  std::vector<Report> shares;
  for (int64_t rank = 0; rank < ranks; ++rank) shares.push_back(ShareOf(whole, rank, ranks));
  return shares;
}

std::string Text(const Report& report) { return ToJson({.report = report, .verdict = {}}); }

TEST(MergeReports, GivesTheReportOfATrainerThatMeasuresEverything) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks) {
    Report whole = WholeReport(300);
    const Report merged = MergeReports(Shares(whole, ranks), /*complete=*/true);
    whole.ranks = ranks;
    whole.sequence = 0;
    EXPECT_EQ(Text(merged), Text(whole)) << ranks << " ranks";
  }
}

TEST(MergeReports, NamesTheRankThatOwesAMeasurement) {
  for (int64_t missing = 0; missing < 4; ++missing) {
    std::vector<Report> shares = Shares(WholeReport(300), 4);
    shares.erase(shares.begin() + missing);
    const Report merged = MergeReports(shares, /*complete=*/false);
    ASSERT_EQ(merged.quantization.size(), 4u);
    const QuantizationReport& owed = merged.quantization[static_cast<size_t>(missing)];
    EXPECT_EQ(owed.status, ProbeStatus::kOtherRank);
    EXPECT_EQ(owed.status_detail, testing::OwnerDetail(missing));
    EXPECT_FALSE(owed.delta_nats || owed.predicted_delta_nats || !owed.layers.empty());
    const auto measured = [](const auto& record) { return record.status == ProbeStatus::kOk; };
    EXPECT_EQ(std::count_if(merged.quantization.begin(), merged.quantization.end(), measured), 3);
    // Their order is that of ShareOf.
    const CurvatureReport& curvature = *merged.curvature;
    EXPECT_EQ(curvature.status, ProbeStatus::kOk) << "three ranks have the eigenvalues";
    EXPECT_TRUE(curvature.top_eigenvalue);
    EXPECT_EQ(curvature.edge_of_stability_ratio.has_value(), missing != 0);
    EXPECT_EQ(curvature.edge_of_stability_status == ProbeStatus::kOtherRank, missing == 0);
    EXPECT_EQ(curvature.edge_of_stability_detail == testing::OwnerDetail(0), missing == 0);
    EXPECT_EQ(curvature.trace.has_value(), missing != 1);
    EXPECT_EQ(curvature.trace_status == ProbeStatus::kOtherRank, missing == 1);
    EXPECT_EQ(curvature.trace_detail, missing == 1 ? testing::OwnerDetail(1) : "");
    EXPECT_EQ(measured(merged.averaging.front()), missing != 2);
    EXPECT_EQ(measured(merged.mixed_precision.front()), missing != 3);
    EXPECT_EQ(measured(*merged.noise), missing != 0);
  }
}

TEST(MergeReports, SaysWhyAPartOfCurvatureFailed) {
  const Report whole = WholeReport(300);
  for (int64_t failed = 0; failed < 4; ++failed) {
    std::vector<Report> shares = Shares(whole, 4);
    CurvatureReport& part = *shares[static_cast<size_t>(failed)].curvature;
    CurvatureReport failure;
    failure.status = ProbeStatus::kOutOfTime;
    failure.status_detail = "too slow";
    failure.trace_status = part.trace_status;
    failure.trace_detail = part.trace_detail;
    failure.edge_of_stability_status = part.edge_of_stability_status;
    if (part.edge_of_stability_status) {
      failure.edge_of_stability_detail = part.edge_of_stability_detail;
    }
    part = failure;
    const CurvatureReport merged = *MergeReports(shares, /*complete=*/true).curvature;
    EXPECT_EQ(merged.status, ProbeStatus::kOk);
    EXPECT_EQ(merged.top_eigenvalue, whole.curvature->top_eigenvalue);
    EXPECT_EQ(merged.edge_of_stability_ratio.has_value(), failed != 0);
    EXPECT_EQ(merged.edge_of_stability_status == ProbeStatus::kOutOfTime, failed == 0);
    EXPECT_EQ(merged.edge_of_stability_detail == "too slow", failed == 0);
    EXPECT_EQ(merged.trace.has_value(), failed != 1);
    EXPECT_EQ(merged.trace_status == ProbeStatus::kOutOfTime, failed == 1);
    EXPECT_EQ(merged.trace_detail, failed == 1 ? "too slow" : "");
  }
  // One reason is enough if no rank has found the eigenvalues.
  std::vector<Report> shares = Shares(whole, 4);
  for (Report& share : shares) share.curvature->status = ProbeStatus::kNonFinite;
  const CurvatureReport merged = *MergeReports(shares, /*complete=*/true).curvature;
  EXPECT_EQ(merged.status, ProbeStatus::kNonFinite);
  EXPECT_FALSE(merged.trace_status || merged.edge_of_stability_status);
}

TEST(MergeReports, HasNoLossOnAllProbeSetsWithoutOneOfThem) {
  for (size_t missing = 0; missing < 4; ++missing) {
    std::vector<Report> shares = Shares(WholeReport(300), 4);
    std::string owed;
    for (const ProbeSet& set : shares[missing].pooled->sets) {
      if (set.status != ProbeStatus::kOk) continue;
      owed = "set " + std::to_string(set.set) + ": " +
             testing::OwnerDetail(static_cast<int64_t>(missing));
    }
    shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(missing));
    const PooledLoss pooled = *MergeReports(shares, /*complete=*/false).pooled;
    EXPECT_EQ(pooled.status_detail, owed) << "three sets, four ranks";
    EXPECT_EQ(pooled.status == ProbeStatus::kOk, owed.empty());
    EXPECT_EQ(pooled.error_ratio.has_value(), owed.empty());
  }
}

TEST(MergeReports, LeavesOutWhatNoRankHadToMeasure) {
  std::vector<Report> shares = Shares(WholeReport(300), 4);
  CurvatureReport other;
  other.status = ProbeStatus::kOtherRank;
  for (Report& share : shares) {
    // Ranks say nothing about curvature that was not due, and one without a part does not know.
    if (&share != &shares.back()) {
      share.curvature.reset();
    } else {
      share.curvature = other;
    }
    if (share.averaging.front().status == ProbeStatus::kOk) share.averaging.clear();
  }
  const Report complete = MergeReports(shares, /*complete=*/true);
  EXPECT_FALSE(complete.curvature.has_value());
  EXPECT_TRUE(complete.averaging.empty());
  const Report incomplete = MergeReports(shares, /*complete=*/false);
  EXPECT_EQ(incomplete.curvature->status, ProbeStatus::kOtherRank);
  EXPECT_EQ(incomplete.averaging.front().status, ProbeStatus::kOtherRank);
}

TEST(MergeReports, LeavesOutATraceThatWasNotDue) {
  std::vector<Report> shares = Shares(WholeReport(300), 4);
  shares[1].curvature.reset();
  const CurvatureReport complete = *MergeReports(shares, /*complete=*/true).curvature;
  EXPECT_TRUE(complete.top_eigenvalue && complete.edge_of_stability_ratio);
  EXPECT_FALSE(complete.trace || complete.trace_status);
  EXPECT_EQ(complete.trace_detail, "");
}

TEST(MergeReports, TakesTheLossOfARankThatCouldMeasureIt) {
  std::vector<Report> shares = Shares(WholeReport(300), 2);
  shares[0].probe_status = ProbeStatus::kFailed;
  shares[0].probe_status_detail = "out of memory";
  shares[0].probe_loss_nats.reset();
  const Report merged = MergeReports(shares, /*complete=*/true);
  EXPECT_EQ(merged.probe_status, ProbeStatus::kOk);
  EXPECT_EQ(merged.probe_loss_nats, shares[1].probe_loss_nats);
  EXPECT_EQ(merged.probe_tokens, shares[1].probe_tokens);
}

}  // namespace merge_reports_test
}  // namespace ptqwatch::internal
