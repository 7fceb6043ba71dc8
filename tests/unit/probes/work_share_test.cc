#include "probes/work_share.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ptqwatch/function_subject.h"
#include "support/probe_run.h"
#include "support/tiny_trainer.h"

namespace ptqwatch::internal {
namespace work_share_test {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DealWork, GivesTheLongestFirst) {
  const std::vector<WorkItem> items = {{10}, {4}, {3}, {3}, {1}};
  EXPECT_THAT(DealWork(items, 0, 1), Each(0));
  EXPECT_THAT(DealWork(items, 0, 2), ElementsAre(0, 1, 1, 1, 0));
  EXPECT_THAT(DealWork(items, 0, 3), ElementsAre(0, 1, 2, 2, 1));
  EXPECT_THAT(DealWork(items, 0, 9), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(DealWork({}, 1, 3), IsEmpty());
}

TEST(DealWork, CountsCalibrationOnceARank) {
  EXPECT_THAT(DealWork({{5, true}, {4, true}, {1, false}}, 6, 2), ElementsAre(0, 1, 1));
  // The second item joins the first: a second calibration would take longer than it.
  EXPECT_THAT(DealWork({{2, true}, {1, true}, {2, false}}, 6, 2), ElementsAre(0, 0, 1));
  EXPECT_THAT(DealWork({{2, true}, {1, true}, {9, false}}, 6, 2), ElementsAre(1, 1, 0));
}

TEST(DealWork, CountsTheSearchOnceARank) {
  const std::vector<WorkItem> items = {{5, false, true}, {4, false, true}, {3, false, true}, {1}};
  EXPECT_THAT(DealWork(items, 0, 2, 2), ElementsAre(0, 1, 1, 0));
  // The second item joins the first: a second search would take longer than it.
  EXPECT_THAT(DealWork({{2, false, true}, {1, false, true}, {9}}, 0, 2, 9), ElementsAre(1, 1, 0));
}

TEST(DealWork, IsBalanced) {
  std::vector<WorkItem> items;
  for (int i = 0; i < 40; ++i) items.push_back({1.0 + std::fmod(i * 0.618, 1.0), i % 3 == 0});
  for (int64_t ranks = 1; ranks <= 9; ++ranks) {
    const std::vector<int64_t> owners = DealWork(items, 0.5, ranks);
    std::vector<double> load(static_cast<size_t>(ranks), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      ASSERT_GE(owners[i], 0);
      ASSERT_LT(owners[i], ranks);
      load[static_cast<size_t>(owners[i])] += items[i].seconds;
    }
    const auto [least, most] = std::minmax_element(load.begin(), load.end());
    EXPECT_LE(*most - *least, 2.5) << ranks << " ranks: at most an item and a calibration";
  }
}

struct WorkShareTest : ::testing::Test {
  WorkShareTest() : subject(trainer.MakeSubject()) {
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                          {.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8},
                          {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8},
                          {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 8}};
    session = *ModelSession::Open(*subject, SessionOptions(options));
  }
  WorkShare Share(int64_t rank, int64_t ranks) {
    options.rank = rank;
    options.ranks = ranks;
    return ShareOfWork(*session, options);
  }

  testing::TinyTrainer trainer;
  std::unique_ptr<Subject> subject;
  MonitorOptions options;
  std::unique_ptr<ModelSession> session;
};

TEST_F(WorkShareTest, IsTheSameOnEachRank) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks) {
    const WorkShare first = Share(0, ranks);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const WorkShare share = Share(rank, ranks);
      EXPECT_EQ(share.rank, rank);
      EXPECT_EQ(share.quantizers, first.quantizers);
      EXPECT_EQ(share.edge, first.edge);
      EXPECT_EQ(share.trace, first.trace);
      EXPECT_EQ(share.mixed_precision, first.mixed_precision);
      EXPECT_EQ(share.averaging, first.averaging);
      EXPECT_EQ(share.noise, first.noise);
    }
    for (const int64_t owner : first.quantizers) EXPECT_LT(owner, ranks);
  }
}

TEST_F(WorkShareTest, KeepsTogetherWhatNeedsEachOther) {
  for (int64_t ranks = 2; ranks <= 9; ++ranks) {
    const WorkShare share = Share(0, ranks);
    EXPECT_EQ(share.quantizers[2], share.mixed_precision) << "the pair of mixed precision";
    EXPECT_EQ(share.quantizers[3], share.mixed_precision);
    EXPECT_EQ(share.noise, share.quantizers[1]) << "the first with the most bits";
  }
}

TEST_F(WorkShareTest, DividesCurvature) {
  for (int64_t ranks = 2; ranks <= 9; ++ranks) {
    const WorkShare first = Share(0, ranks);
    EXPECT_NE(first.trace, first.edge);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const WorkShare share = Share(rank, ranks);
      EXPECT_EQ(share.OwnQuantizers(),
                std::count(first.quantizers.begin(), first.quantizers.end(), rank));
      EXPECT_EQ(share.OwnsCurvature(),
                rank == first.trace || rank == first.edge || share.OwnQuantizers() > 0);
      if (ranks >= 4 && rank == first.trace) {
        EXPECT_EQ(share.OwnQuantizers(), 0) << "the longest part is alone";
      }
    }
  }
  EXPECT_TRUE(WorkShare().OwnsCurvature());
}

TEST_F(WorkShareTest, GivesEachOfFourRanksAPart) {
  const WorkShare share = Share(2, 4);
  std::vector<int64_t> owners = share.quantizers;
  owners.push_back(share.averaging);
  owners.push_back(share.trace);
  owners.push_back(share.edge);
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_NE(std::find(owners.begin(), owners.end(), rank), owners.end()) << rank;
  }
  const std::string text = share.Describe(options);
  EXPECT_THAT(text, HasSubstr("rank 2 of 4"));
  EXPECT_THAT(text, HasSubstr("(this one)"));
  EXPECT_THAT(text, HasSubstr("gptq3, gptq4"));
  EXPECT_THAT(text, HasSubstr(" trace"));
  EXPECT_THAT(text, HasSubstr("edge of stability"));
  EXPECT_EQ(Share(0, 1).Describe(options), "");
  EXPECT_THAT(Share(8, 9).Describe(options), HasSubstr("the full-precision loss alone (this one)"));
}

TEST_F(WorkShareTest, DealsFurtherProbeSetsToRanksWithTime) {
  options.further_probe_sets = 3;
  subject = trainer.MakeSubject();
  session = *ModelSession::Open(*subject, SessionOptions(options));
  const WorkShare share = Share(1, 4);
  ASSERT_EQ(share.further_sets.size(), 3u);
  for (const int64_t owner : share.further_sets) {
    EXPECT_NE(owner, share.averaging) << "the rank with most to do";
    EXPECT_THAT(Share(owner, 4).Describe(options), HasSubstr("probe set "));
  }
  EXPECT_EQ(Share(2, 4).further_sets, share.further_sets);
  // Each further rank takes another set.
  std::vector<int64_t> owners = Share(0, 9).further_sets;
  std::sort(owners.begin(), owners.end());
  EXPECT_EQ(std::unique(owners.begin(), owners.end()), owners.end());
  EXPECT_THAT(Share(0, 1).further_sets, ElementsAre(0, 0, 0));
}

TEST_F(WorkShareTest, NeedsNoCurvature) {
  options.curvature.enabled = false;
  options.averaging.enabled = false;
  const WorkShare share = Share(0, 4);
  std::vector<int64_t> owners = share.quantizers;
  std::sort(owners.begin(), owners.end());
  EXPECT_THAT(owners, ElementsAre(0, 1, 2, 3));
}

// A closure may have its data elsewhere.
TEST(WorkShare, TakesABatchWithoutTensors) {
  const auto subject = MakeFunctionSubject(
      {.live = {{"a", at::ones({3, 4}), true}, {"b", at::ones({2, 3}), true}},
       .losses = [](const TensorMap& w, const Batch&) -> LossValues {
         return at::linear(at::linear(at::ones({5, 4}), w.at("a")), w.at("b")).square().mean();
       },
       .probe = {Batch(), Batch()}});
  MonitorOptions options;
  options.rank = 0;
  options.ranks = 2;
  options.curvature.enabled = false;
  const auto session = ModelSession::Open(*subject, SessionOptions(options));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(ShareOfWork(**session, options).quantizers.size(), options.quantizers.size());
}

}  // namespace work_share_test
}  // namespace ptqwatch::internal
