#include "staging/shards.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "staging/shard_address.h"
#include "support/temp_dir.h"
#include "unit/staging/row_rank.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;
using testing::TempDir;

class ShardsTest : public ::testing::Test {
 protected:
  void Start(int64_t ranks) {
    for (int64_t rank = 0; rank < ranks; ++rank) Add(rank, ranks);
  }
  void Add(int64_t rank, int64_t ranks, const std::string& schedule = "every 1") {
    ranks_.push_back(
        std::make_unique<RowRank>(ShardPlace{"job", Directory(), rank, ranks}, ranks, schedule));
    if (rank == 0) return;
    ASSERT_TRUE(
        ranks_.back()->address.Publish(ranks_.back()->place, ranks_.back()->memory->file()).ok());
  }
  absl::Status Open() {
    auto opened = Shards::Open(ranks_[0]->memory, ranks_[0]->manifest, trainer_,
                               steady_clock::now(), stopped_);
    if (opened.ok()) shards_ = *std::move(opened);
    return opened.status();
  }
  std::string Directory() const { return dir_.path() + "/shards"; }
  double Value() const { return shards_->tensors()[0].tensor.mean().item<double>(); }

  TempDir dir_;
  std::vector<std::unique_ptr<RowRank>> ranks_;
  std::atomic<bool> stopped_{false};
  pid_t trainer_ = 7;
  std::unique_ptr<Shards> shards_;
};

TEST_F(ShardsTest, ASnapshotIsCompleteOnceAllRanksHoldIt) {
  Start(3);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Value(), 0);  // as the memory was
  EXPECT_EQ(shards_->assembled_bytes(), 3 * 4 * 4);
  ranks_[0]->Take(7);
  ranks_[2]->Take(7);
  EXPECT_FALSE(shards_->complete());
  EXPECT_FALSE(shards_->Begin());
  EXPECT_EQ(shards_->Drop(), std::nullopt);  // rank 1 may still come
  ranks_[1]->Take(7);
  EXPECT_TRUE(shards_->complete());
  ASSERT_TRUE(shards_->Begin());
  EXPECT_EQ(Value(), 7);
  EXPECT_FALSE(ranks_[1]->Take(8));  // it is being loaded
  shards_->Release();
  shards_->Done();
  EXPECT_TRUE(ranks_[1]->Take(9));
}

TEST_F(ShardsTest, ASnapshotThatARankHasPassedIsDropped) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  ranks_[0]->Take(4);
  ranks_[1]->Step(4);
  EXPECT_EQ(shards_->Drop(), std::nullopt);  // rank 1 may be about to copy
  ranks_[1]->Step(5);
  EXPECT_THAT(shards_->Drop().value_or(""),
              HasSubstr("the snapshot of step 4 is incomplete: rank 1 did not copy its part"));
  EXPECT_TRUE(ranks_[0]->page().slot.free());
  EXPECT_FALSE(ranks_[0]->page().slot.has_taken(4));
  // Both hold different steps: neither can become complete.
  ranks_[0]->Take(6);
  ranks_[1]->Take(8);
  ranks_[0]->Step(8);
  EXPECT_TRUE(shards_->Drop());
  ranks_[0]->Step(9);
  shards_->Drop();
  for (auto& rank : ranks_) EXPECT_TRUE(rank->Take(10));
  EXPECT_TRUE(shards_->Begin());
  EXPECT_EQ(Value(), 10);
}

TEST_F(ShardsTest, ASnapshotFromBeforeARollbackIsDropped) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  ranks_[0]->Take(4);
  for (auto& rank : ranks_) rank->Step(2);
  EXPECT_THAT(shards_->Drop().value_or(""), HasSubstr("rank 0 has gone back"));
  EXPECT_TRUE(ranks_[0]->page().slot.free());
}

TEST_F(ShardsTest, SnapshotsOfOneStepBeforeAndAfterARollbackAreNotMixed) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  ranks_[1]->Take(4);
  for (auto& rank : ranks_) rank->pass = 1;
  ranks_[0]->Take(4);
  ranks_[1]->Step(4);
  EXPECT_FALSE(shards_->complete());
  EXPECT_THAT(shards_->Drop().value_or(""),
              HasSubstr("rank 1 holds it from before the steps went back"));
  EXPECT_TRUE(ranks_[1]->Take(4));
  EXPECT_TRUE(shards_->complete());
}

TEST_F(ShardsTest, ARequestThatIsDroppedIsMadeAgain) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  ranks_[0]->page().switches.requests = 1;
  ranks_[0]->Take(4, SnapshotTrigger::kRequest);
  ranks_[1]->Step(5);
  EXPECT_TRUE(shards_->Drop());
  shards_->PassOn();
  EXPECT_EQ(ranks_[1]->page().switches.requests, 2);
}

TEST_F(ShardsTest, RestsDelayTheMeasurement) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  for (auto& rank : ranks_) rank->Take(1);
  ranks_[0]->page().switches.rest_until_ns = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(shards_->Begin());
  ranks_[0]->page().switches.rest_until_ns = 0;
  EXPECT_TRUE(shards_->Begin());
}

TEST_F(ShardsTest, AllRanksCopyTheLastStep) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  shards_->AskForLast();
  EXPECT_EQ(shards_->LastTaken(), std::nullopt);
  const auto answer = [&](size_t rank, SnapshotResult result) {
    Page::LastStep& last = ranks_[rank]->page().last_step;
    last.result = result;
    last.answered = last.asked.load();
  };
  answer(0, SnapshotResult::kTaken);
  EXPECT_EQ(shards_->LastTaken(), std::nullopt);
  EXPECT_EQ(shards_->WithoutAnswer(), "rank 1");
  answer(1, SnapshotResult::kSkippedBusy);
  EXPECT_EQ(shards_->LastTaken(), SnapshotResult::kSkippedBusy);
  shards_->TellFinished(7, absl::CancelledError("it was cancelled"), 3);
  const Page::Answers& answers = ranks_[1]->page().answers;
  EXPECT_EQ(answers.finished, 1);
  EXPECT_EQ(answers.finished_step, 7);
  EXPECT_EQ(answers.code, absl::StatusCode::kCancelled);
  EXPECT_STREQ(answers.reason.data(), "it was cancelled");
  EXPECT_EQ(answers.sequence, 3);
}

TEST_F(ShardsTest, NameRanksThatEndAtOtherSteps) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(shards_->DifferentSteps(), std::nullopt);
  ranks_[0]->page().board.OnStep({.step = 4}, LrPhase::kStable, 1);
  EXPECT_EQ(shards_->DifferentSteps(), "rank 0 ends at step 4, rank 1 ends before a step");
  ranks_[1]->page().board.OnStep({.step = 5}, LrPhase::kStable, 1);
  EXPECT_EQ(shards_->DifferentSteps(), "rank 0 ends at step 4, rank 1 ends at step 5");
}

TEST_F(ShardsTest, PassOnTheSwitches) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  TrainerSwitches& first = ranks_[0]->page().switches;
  first.every = 5;
  first.stretch = 2;
  first.paused = true;
  shards_->PassOn();
  const TrainerSwitches& second = ranks_[1]->page().switches;
  EXPECT_EQ(second.every, 5);
  EXPECT_EQ(second.stretch, 2);
  EXPECT_TRUE(second.paused);
  EXPECT_EQ(ranks_[1]->page().answers.ready, getpid());
}

TEST_F(ShardsTest, ANewProcessTakesOver) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  for (auto& rank : ranks_) rank->Take(1);
  ASSERT_TRUE(shards_->Begin());  // and the process ends
  ASSERT_TRUE(Open().ok());
  shards_->TakeOver();
  EXPECT_TRUE(shards_->Begin());
  EXPECT_EQ(Value(), 1);
}

TEST_F(ShardsTest, ARankThatIsMissingIsNamed) {
  Add(0, 3);
  Add(2, 3);
  const absl::Status opened = Open();
  EXPECT_TRUE(absl::IsDeadlineExceeded(opened));
  EXPECT_THAT(std::string(opened.message()),
              HasSubstr("sharded over 3 ranks of this host, and only ranks 0, 2 shared"));
}

TEST_F(ShardsTest, ARefusalIsPassedOn) {
  Add(0, 2);
  ShardAddress::Refuse({"job", Directory(), 1, 2}, "its disk is full");
  EXPECT_EQ(Open().message(), "rank 1 does not share its part of the model: its disk is full");
}

TEST_F(ShardsTest, RanksWithOtherOptionsAreRefused) {
  Add(0, 2);
  Add(1, 2, "every 3");
  EXPECT_THAT(std::string(Open().message()), HasSubstr("schedule of rank 0: every 1; of rank 1"));
}

TEST_F(ShardsTest, OtherLaunchesAndWhatIsLeftOfThemAreLeftOut) {
  Start(2);
  std::ofstream(Directory() + "/rank-0009.json") << "{";
  std::ofstream(Directory() + "/rank-0010.json") << R"({"rank": 10, "job": "job"})";
  const ShardPlace other{"other", Directory(), 1, 2};
  EXPECT_TRUE(FindShards(other).memory.empty());
  EXPECT_TRUE(Open().ok());
  // A rank that stops withdraws its address.
  ranks_[1]->address.Withdraw();
  EXPECT_TRUE(FindShards(ranks_[1]->place).memory.empty());
}

TEST_F(ShardsTest, ARankOfAnEarlierLaunchIsRefused) {
  Start(2);
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Open().ok()) << "another process measures for the same launch";
  trainer_ = 8;
  EXPECT_THAT(std::string(Open().message()),
              HasSubstr("is rank 1 of a run in the same directory, and measured for process 7"));
}

TEST_F(ShardsTest, AProcessInAnotherPidNamespaceIsNamed) {
  Start(2);
  const std::string path = Directory() + "/rank-0001.json";
  std::string text;
  std::getline(std::ifstream(path), text);
  const size_t at = text.find("pid:[");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 6, "pid:[0");
  std::ofstream(path) << text;
  EXPECT_THAT(std::string(Open().message()),
              HasSubstr("the process of rank 1 is in another PID namespace"));
}

TEST_F(ShardsTest, ARefusalDoesNotReplaceAnAddressAndIsWithdrawn) {
  Start(2);
  const ShardPlace place = ranks_[1]->place;
  ranks_[1]->address.Withdraw();
  EXPECT_TRUE(FindShards(place).memory.empty());
  ShardAddress::Refuse(place, "why");
  ranks_[1]->address.Withdraw();  // is not its address
  EXPECT_EQ(FindShards(place).refusals.at(1), "why");
  ShardAddress::WithdrawRefusal(place);
  EXPECT_FALSE(std::filesystem::exists(Directory()));
}

TEST_F(ShardsTest, AnotherProcessKeepsItsAddress) {
  Start(2);
  const std::string path = Directory() + "/rank-0001.json";
  std::string text;
  std::getline(std::ifstream(path), text);
  // As if the parent of this process had published it.
  const auto replace = [&](const std::string& name, const std::string& value) {
    const size_t begin = text.find("\"" + name + "\":") + name.size() + 3;
    text.replace(begin, text.find_first_of(",}", begin) - begin, value);
  };
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(getppid()) + "/stat"), stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string began;
  for (int i = 0; i < 20; ++i) fields >> began;
  replace("process", std::to_string(getppid()));
  replace("began", "\"" + began + "\"");
  std::ofstream(path) << text;
  ShardAddress second;
  EXPECT_THAT(std::string(second.Publish(ranks_[1]->place, 0).message()),
              HasSubstr("is rank 1 of a run in the same directory"));
  ShardAddress::Refuse(ranks_[1]->place, "another run");
  EXPECT_EQ(FindShards(ranks_[1]->place).refusals.at(1), "another run");
  ShardAddress::WithdrawRefusal(ranks_[1]->place);
  replace("began", "\"1\"");  // that process has ended
  std::ofstream(path) << text;
  EXPECT_TRUE(second.Publish(ranks_[1]->place, 0).ok());
}

TEST_F(ShardsTest, StopsWaitingIfStopped) {
  Add(0, 2);
  stopped_ = true;
  EXPECT_TRUE(absl::IsCancelled(Open()));
}

}  // namespace
}  // namespace ptqwatch::internal
