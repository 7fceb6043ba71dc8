#include "ranks/merged_series.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/rank_reports.h"

namespace ptqwatch::internal {
namespace merged_series_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ShareOf;
using testing::WholeReport;

struct Line {
  int64_t step = 0;
  int64_t ranks = 4;
  int attempt = 1;
  std::string bits = "x";  // of the parameters
  bool rolled_back = false;
  std::string fingerprint = "";
};

// Each rank measures the quantizer of its number.
Report ReportOf(int64_t rank, const Line& line) {
  Report report;
  report.run_id = "run";
  report.attempt = line.attempt;
  report.rank = rank;
  report.ranks = line.ranks;
  report.step = line.step;
  report.fingerprint = line.fingerprint;
  report.rolled_back = line.rolled_back;
  report.snapshot_digest = std::to_string(line.step) + line.bits;
  report.parameter_digests = {{"a", "same"}, {"b", line.bits}};
  for (int64_t item = 0; item < line.ranks; ++item) {
    QuantizationReport& entry = report.quantization.emplace_back();
    entry.method = QuantizationMethod::kRtn;
    entry.bits = static_cast<int>(item) + 2;
    entry.status = item == rank ? ProbeStatus::kOk : ProbeStatus::kOtherRank;
  }
  return report;
}

class MergedSeriesTest : public ::testing::Test {
 protected:
  void Append(int64_t rank, const Line& line) { journals_[rank].push_back(ReportOf(rank, line)); }
  void AppendAll(int64_t ranks, Line line) {
    line.ranks = ranks;
    for (int64_t rank = 0; rank < ranks; ++rank) Append(rank, line);
  }

  // Reads and merges until nothing more comes from the journals, or until a rank that `awaited`
  // names is lacking.
  void Merge(const std::vector<int64_t>& awaited = {}) {
    while (true) {
      for (auto& [rank, journal] : journals_) {
        size_t& read = read_[rank];
        if (merger_.Needs(rank) && read < journal.size()) merger_.Add(rank, journal[read++]);
      }
      const auto front = merger_.Look();
      if (!front) return;
      for (const int64_t rank : awaited) {
        if (::testing::Value(front->lacking, ::testing::Contains(rank))) return;
      }
      MergedSeries::Step step = merger_.Take();
      if (step.diverged) events_.push_back(*step.diverged);
      if (step.report) merged_.push_back(*std::move(step.report));
    }
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const Report& report : merged_) steps.push_back(report.step);
    return steps;
  }
  // The ranks whose quantizer is measured in the newest merged report.
  std::vector<int64_t> Measured() const {
    std::vector<int64_t> ranks;
    const auto& entries = merged_.back().quantization;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].status == ProbeStatus::kOk) ranks.push_back(static_cast<int64_t>(i));
    }
    return ranks;
  }

  std::map<int64_t, std::vector<Report>> journals_;
  std::map<int64_t, size_t> read_;
  MergedSeries merger_;
  std::vector<Report> merged_;
  std::vector<Event> events_;
};

TEST_F(MergedSeriesTest, GivesTheReportsOfATrainerAlone) {
  std::vector<Report> alone;
  for (const int64_t step : {100, 200, 300}) {
    alone.push_back(WholeReport(step));
    for (int64_t rank = 0; rank < 4; ++rank) {
      journals_[rank].push_back(ShareOf(alone.back(), rank, 4));
    }
    alone.back().ranks = 4;
  }
  Merge();
  EXPECT_EQ(merged_, alone);
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(MergedSeriesTest, WaitsForTheRanksThatAreLacking) {
  EXPECT_FALSE(merger_.Look().has_value());
  Append(0, {.step = 100});
  Append(2, {.step = 100});
  Merge({1, 3});
  EXPECT_THAT(merged_, IsEmpty());
  EXPECT_THAT(merger_.Look()->lacking, ElementsAre(1, 3));
  Append(1, {.step = 100});
  Append(3, {.step = 200});  // it has passed step 100
  Merge({1, 3});
  EXPECT_THAT(Steps(), ElementsAre(100));
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2));
}

TEST_F(MergedSeriesTest, LeavesOutWhatComesLate) {
  for (const int64_t rank : {0, 1, 3}) {
    for (const int64_t step : {100, 200}) Append(rank, {.step = step});
  }
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200));
  for (const int64_t step : {100, 200}) Append(2, {.step = step});
  AppendAll(4, {.step = 300});
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300));
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(merged_.back().sequence, 3);
}

TEST_F(MergedSeriesTest, ReadAgainItHasWhatCameLate) {
  for (const int64_t rank : {0, 1, 3}) {
    for (const int64_t step : {100, 200}) Append(rank, {.step = step});
  }
  for (const int64_t step : {100, 150, 200}) Append(2, {.step = step});
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 150, 200));
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2, 3));
}

// Whichever steps it measures: the series must not change its fingerprint to and fro.
TEST_F(MergedSeriesTest, LeavesOutARankThatMeasuresSomethingElse) {
  for (const int64_t step : {100, 200, 300}) {
    for (const int64_t rank : {0, 1, 2}) Append(rank, {.step = step, .fingerprint = "a"});
  }
  for (const int64_t step : {50, 100, 150, 200, 250, 300, 350}) {
    Append(3, {.step = step, .fingerprint = "b"});
  }
  AppendAll(4, {.step = 400, .attempt = 2, .fingerprint = "b"});  // it was right
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300, 400));
  EXPECT_EQ(merged_[2].quantization[3].status, ProbeStatus::kOtherRank);
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2, 3));
}

TEST_F(MergedSeriesTest, FollowsRunsOfOtherSizes) {
  for (const int64_t step : {100, 200}) AppendAll(4, {.step = step});
  for (const int64_t step : {300, 400}) AppendAll(3, {.step = step, .attempt = 2});
  for (const int64_t step : {500, 600}) AppendAll(5, {.step = step, .attempt = 3});
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300, 400, 500, 600));
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(merged_[2].ranks, 3);
  EXPECT_EQ(merged_[2].attempt, 2);
  EXPECT_THAT(events_, IsEmpty());
}

// Training goes back to step 200 twice, each time with other ranks and other bits.
TEST_F(MergedSeriesTest, RedoneTrainingIsNotAnotherReplica) {
  for (const int64_t step : {100, 200, 300}) AppendAll(4, {.step = step});
  for (const int64_t step : {300, 400}) {
    AppendAll(3, {.step = step, .attempt = 2, .bits = "y", .rolled_back = step == 300});
  }
  for (const int64_t step : {300, 400, 500}) {
    AppendAll(5, {.step = step, .attempt = 3, .bits = "z", .rolled_back = step == 300});
  }
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300, 300, 400, 300, 400, 500));
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_FALSE(merger_.replicas().diverged);
  for (const Report& report : merged_) {
    for (const QuantizationReport& entry : report.quantization) {
      EXPECT_EQ(entry.status, ProbeStatus::kOk);
    }
  }
}

TEST_F(MergedSeriesTest, GoesBackWithinAnAttempt) {
  for (const int64_t step : {100, 200, 300}) AppendAll(2, {.step = step});
  AppendAll(2, {.step = 200, .bits = "y", .rolled_back = true});
  AppendAll(2, {.step = 300, .bits = "y"});
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 300, 200, 300));
  EXPECT_THAT(events_, IsEmpty());
}

// Rank 2 was killed before its first report, so its count of attempts is behind, and it is the
// first to report a step that the others have redone but not reported yet.
TEST_F(MergedSeriesTest, AnAttemptWithoutAReportOfARankIsNotAnotherReplica) {
  for (const int64_t rank : {0, 1, 3}) {
    for (const int64_t step : {100, 200}) Append(rank, {.step = step});
  }
  Merge();
  for (const int64_t rank : {0, 1, 3}) merger_.KnowAttempt(rank, 2);
  merger_.KnowAttempt(2, 1);
  Append(2, {.step = 200, .attempt = 1, .bits = "y"});
  Merge({0, 1, 3});
  EXPECT_THAT(events_, IsEmpty());
  for (const int64_t rank : {0, 1, 3}) {
    Append(rank, {.step = 200, .attempt = 2, .bits = "y", .rolled_back = true});
  }
  Append(2, {.step = 300, .attempt = 1, .bits = "y"});
  for (const int64_t rank : {0, 1, 3}) Append(rank, {.step = 300, .attempt = 2, .bits = "y"});
  Merge();
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_THAT(Steps(), ElementsAre(100, 200, 200, 300));
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2, 3));
}

// Such as ranks that run one after the other.
TEST_F(MergedSeriesTest, JoinsEqualParametersWhateverTheAttempt) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const int64_t step : {100, 200}) {
      Append(rank, {.step = step, .attempt = static_cast<int>(rank) + 1});
    }
  }
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100, 200));
  EXPECT_THAT(Measured(), ElementsAre(0, 1, 2, 3));
}

// A rank that was started again alone, and differs.
TEST_F(MergedSeriesTest, ComparesTheNewestAttempts) {
  AppendAll(4, {.step = 100});
  Merge();
  merger_.KnowAttempt(2, 2);
  for (const int64_t rank : {0, 1, 3}) Append(rank, {.step = 200});
  Append(2, {.step = 200, .attempt = 2, .bits = "y"});
  Merge();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(merger_.replicas().minority, "2");
  AppendAll(4, {.step = 300, .attempt = 3});
  Merge();
  EXPECT_FALSE(merger_.replicas().diverged);
}

TEST_F(MergedSeriesTest, MergesOnlyThePartsOfMostRanks) {
  for (const int64_t rank : {0, 2, 3}) Append(rank, {.step = 100});
  Append(1, {.step = 100, .bits = "y"});
  Merge();
  EXPECT_THAT(Measured(), ElementsAre(0, 2, 3));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_THAT(events_[0].message, HasSubstr("first in 'b'"));
  EXPECT_EQ(events_[0].step, 100);
  EXPECT_EQ(merger_.replicas().minority, "1");
  EXPECT_EQ(merger_.replicas().parameter, "b");
}

TEST_F(MergedSeriesTest, FindsARankThatDiffersAndComesLate) {
  for (const int64_t rank : {0, 2, 3}) Append(rank, {.step = 100});
  Merge();
  Append(1, {.step = 100, .bits = "y"});
  Merge();
  EXPECT_THAT(Steps(), ElementsAre(100));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(merger_.replicas().minority, "1");
}

// Attempts, skipped snapshots and late reports, but never other bits.
TEST_F(MergedSeriesTest, TenThousandEqualSnapshotsGiveNoAlarm) {
  constexpr int64_t kSteps = 10'000;
  const auto take = [&] {
    while (merger_.Look()) {
      MergedSeries::Step taken = merger_.Take();
      EXPECT_FALSE(taken.diverged.has_value()) << taken.diverged->message;
      if (taken.report) merged_.push_back(*std::move(taken.report));
    }
  };
  for (int64_t step = 1; step <= kSteps; ++step) {
    const int attempt = static_cast<int>(step / 1'000) + 1;
    const int64_t ranks = 2 + attempt % 4;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      if (step % (1 << (rank % 3)) != 0) continue;  // its grid is coarser
      const Line line{.step = step, .ranks = ranks, .attempt = attempt};
      if (rank == 1 && step % 10 == 0) take();  // without it and those after it
      merger_.Add(rank, ReportOf(rank, line));
    }
    take();
  }
  EXPECT_EQ(merged_.size(), static_cast<size_t>(kSteps));
  EXPECT_FALSE(merger_.replicas().diverged);
  AppendAll(4, {.step = kSteps + 4, .attempt = 99});
  journals_[3][0].snapshot_digest += "1";
  journals_[3][0].parameter_digests[1].digest += "1";
  Merge();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(merger_.replicas().minority, "3");
}

TEST_F(MergedSeriesTest, ALineOfDamageCostsNoMemory) {
  Report report = ReportOf(0, {.step = 100});
  report.ranks = int64_t{1} << 60;
  merger_.Add(0, report);
  EXPECT_LE(merger_.Look()->lacking.size(), 1'000'000u);
  report.ranks = -4;
  report.step = 200;
  merger_.Add(1, report);
  EXPECT_TRUE(merger_.Take().report.has_value());
  EXPECT_EQ(merger_.Look()->ranks, 1);
}

}  // namespace merged_series_test
}  // namespace ptqwatch::internal
