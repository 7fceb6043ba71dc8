#include "journal/merge_reports.h"

#include <algorithm>
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
    EXPECT_EQ(measured(*merged.curvature), missing != 0);
    EXPECT_EQ(measured(merged.averaging.front()), missing != 1);
    EXPECT_EQ(measured(merged.mixed_precision.front()), missing != 2);
    EXPECT_EQ(measured(*merged.noise), missing != 3);
    // Without the curvature's rank there is no prediction for the others.
    EXPECT_EQ(merged.quantization[1].predicted_delta_nats.has_value(),
              missing != 0 && missing != 1);
  }
}

TEST(MergeReports, LeavesOutWhatNoRankHadToMeasure) {
  std::vector<Report> shares = Shares(WholeReport(300), 4);
  for (Report& share : shares) {
    // Of curvature that was not due, its rank says nothing and the others do not know.
    if (share.curvature->status == ProbeStatus::kOk) share.curvature.reset();
    if (share.averaging.front().status == ProbeStatus::kOk) share.averaging.clear();
  }
  const Report complete = MergeReports(shares, /*complete=*/true);
  EXPECT_FALSE(complete.curvature.has_value());
  EXPECT_TRUE(complete.averaging.empty());
  const Report incomplete = MergeReports(shares, /*complete=*/false);
  EXPECT_EQ(incomplete.curvature->status, ProbeStatus::kOtherRank);
  EXPECT_EQ(incomplete.averaging.front().status, ProbeStatus::kOtherRank);
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
