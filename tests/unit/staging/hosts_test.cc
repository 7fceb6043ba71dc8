// A model of which no host has the whole: the first host measures, and the other one relays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "staging/host_state.h"
#include "staging/shards.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "unit/staging/row_rank.h"

namespace ptqwatch::internal {
namespace hosts_test {

using std::chrono::steady_clock;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::TempDir;

// Two hosts with two ranks each.
class HostsTest : public ::testing::Test {
 protected:
  HostsTest() {
    for (int64_t rank = 0; rank < 4; ++rank) Add(rank, "every 1");
  }
  ~HostsTest() override {
    if (starting_.joinable()) starting_.join();
  }

  void Add(int64_t rank, const std::string& schedule, const std::string& job = "job") {
    const ShardPlace place{job, Directory(), rank, 2, rank / 2, 2};
    ranks_.push_back(std::make_unique<RowRank>(place, 4, schedule));
    if (rank % 2 == 0) return;
    ASSERT_TRUE(ranks_.back()->address.Publish(place, ranks_.back()->memory->file()).ok());
  }
  static steady_clock::time_point In(int seconds) {
    return steady_clock::now() + std::chrono::seconds(seconds);
  }
  // Opens the host of that rank.
  absl::StatusOr<std::unique_ptr<Shards>> Open(size_t first, int seconds) {
    return Shards::Open(ranks_[first]->memory, ranks_[first]->manifest, 7, In(seconds), stopped_);
  }
  void StartRelay(size_t first = 2) {
    auto opened = Open(first, 20);
    ASSERT_TRUE(opened.ok()) << opened.status();
    relay_ = *std::move(opened);
    ASSERT_NE(relay_->relay(), nullptr);
    starting_ = std::thread([this] { started_ = relay_->relay()->Start(In(20), stopped_); });
  }
  void StartFirst() {
    auto opened = Open(0, 20);
    ASSERT_TRUE(opened.ok()) << opened.status();
    first_ = *std::move(opened);
    EXPECT_TRUE(first_->several_hosts());
    ranks_[0]->page().past_known = true;
    ranks_[0]->page().switches.every = 5;
    first_->PassOn();
  }
  void StartBoth() {
    ranks_[0]->Fill(10);
    ranks_[3]->Fill(13);
    StartRelay();
    StartFirst();
    starting_.join();
    ASSERT_TRUE(started_.ok()) << started_;
  }
  bool TakeAll(int64_t step) {
    bool all = true;
    for (const auto& rank : ranks_) all = rank->Take(step) && all;
    return all;
  }
  // The rows of the assembled matrix.
  std::vector<double> Rows() const {
    std::vector<double> rows;
    for (int64_t row = 0; row < 4; ++row) {
      rows.push_back(first_->tensors()[0].tensor[row][3].item<double>());
    }
    return rows;
  }
  std::string Directory() const { return dir_.path() + "/shards"; }
  // That of the second host.
  std::string Folder() const {
    for (const auto& entry : std::filesystem::directory_iterator(Directory())) {
      if (entry.is_directory()) return entry.path().string();
    }
    return "";
  }
  // The page of a rank of the second host, as the first host has it.
  Page& FarPage(int64_t rank) { return first_->PageOf(rank); }

  TempDir dir_;
  std::vector<std::unique_ptr<RowRank>> ranks_;
  std::atomic<bool> stopped_{false};
  std::unique_ptr<Shards> first_;
  std::unique_ptr<Shards> relay_;
  std::thread starting_;
  absl::Status started_ = absl::UnknownError("not started");
};

TEST_F(HostsTest, TheFirstHostGetsTheWeightsOfAll) {
  StartBoth();
  EXPECT_EQ(Rows(), (std::vector<double>{10, 0, 0, 13})) << "at the start";
  EXPECT_THAT(first_->Describe(), HasSubstr("sharded over 4 ranks"));
  EXPECT_THAT(first_->Describe(), HasSubstr("those from rank 2 on are on other hosts"));
  for (const int64_t step : {5, 10}) {
    ASSERT_TRUE(Eventually([&] { return TakeAll(step); }));
    ASSERT_TRUE(Eventually([&] { return first_->Begin(); }));
    EXPECT_EQ(Rows(), std::vector<double>(4, static_cast<double>(step)));
    EXPECT_FALSE(ranks_[2]->Take(step + 1)) << "it is being loaded";
    first_->Release();
    first_->Done();
    ASSERT_TRUE(Eventually([&] { return ranks_[3]->page().slot.free(); }));
    EXPECT_EQ(ranks_[3]->page().slot.dropped(), 0);
  }
}

TEST_F(HostsTest, SwitchesReachAllRanks) {
  StartBoth();
  for (const size_t rank : {2, 3}) {
    EXPECT_EQ(ranks_[rank]->page().switches.every, 5);
    EXPECT_TRUE(ranks_[rank]->page().past_known);
  }
  EXPECT_NE(ranks_[3]->page().answers.ready, 0);
  EXPECT_EQ(ranks_[2]->page().answers.ready, 0) << "its process answers for itself";
  ranks_[0]->page().switches.paused = true;
  first_->PassOn();
  EXPECT_TRUE(Eventually([&] { return ranks_[2]->page().switches.paused.load(); }));
}

TEST_F(HostsTest, WhatCannotBecomeCompleteIsDroppedOnAllHosts) {
  StartBoth();
  for (const size_t rank : {0, 1, 2}) ranks_[rank]->Take(4);
  ranks_[3]->Step(5);
  std::optional<std::string> why;
  ASSERT_TRUE(Eventually([&] { return (why = first_->Drop()).has_value(); }));
  EXPECT_THAT(*why, HasSubstr("step 4 is incomplete: rank 3 did not copy its part"));
  ASSERT_TRUE(Eventually([&] {
    first_->Drop();
    return ranks_[2]->page().slot.free();
  }));
  EXPECT_EQ(ranks_[2]->page().slot.dropped(), 1);
  EXPECT_TRUE(TakeAll(6));
  EXPECT_TRUE(Eventually([&] { return first_->Begin(); }));
}

TEST_F(HostsTest, AllCopyTheLastStepAndLearnHowItWasFinished) {
  StartBoth();
  for (const auto& rank : ranks_) rank->Step(9);
  for (int64_t finish = 1; finish <= 2; ++finish) {
    first_->AskForLast();
    for (const auto& rank : ranks_) {
      Page::LastStep& last = rank->page().last_step;
      ASSERT_TRUE(Eventually([&] { return last.asked == finish; }));
      last.result = rank->Take(9) ? SnapshotResult::kTaken : SnapshotResult::kFailed;
      last.answered = last.asked.load();
    }
    ASSERT_TRUE(Eventually([&] { return first_->LastTaken().has_value(); }));
    EXPECT_EQ(first_->LastTaken(), SnapshotResult::kTaken);
    EXPECT_EQ(first_->DifferentSteps(), std::nullopt);
    ASSERT_TRUE(Eventually([&] { return first_->Begin(); }));
    EXPECT_EQ(Rows(), std::vector<double>(4, 9));
    first_->Release();
    first_->Done();
    EXPECT_EQ(relay_->relay()->Finished(9), std::nullopt);
    first_->TellFinished(9, absl::CancelledError("it was cancelled"), 3);
    std::optional<absl::Status> finished;
    ASSERT_TRUE(Eventually([&] { return (finished = relay_->relay()->Finished(9)).has_value(); }));
    EXPECT_EQ(*finished, absl::CancelledError("it was cancelled"));
    const Page::Answers& answers = ranks_[3]->page().answers;
    EXPECT_EQ(answers.finished, finish);
    EXPECT_EQ(answers.finished_step, 9);
    EXPECT_STREQ(answers.reason.data(), "it was cancelled");
    ASSERT_TRUE(Eventually([&] { return ranks_[2]->page().slot.free(); }));
  }
}

TEST_F(HostsTest, ANewProcessOfEitherHostGoesOn) {
  StartBoth();
  ASSERT_TRUE(TakeAll(5));
  ASSERT_TRUE(Eventually([&] { return first_->complete(); }));
  first_.reset();
  StartFirst();
  ASSERT_TRUE(Eventually([&] { return first_->Begin(); })) << "the slots still hold it";
  EXPECT_EQ(Rows(), std::vector<double>(4, 5));
  first_->Release();
  first_->Done();
  ASSERT_TRUE(Eventually([&] { return ranks_[2]->page().slot.free(); }));
  relay_.reset();
  ASSERT_TRUE(TakeAll(10));
  StartRelay();
  ASSERT_TRUE(Eventually([&] { return first_->Begin(); }));
  EXPECT_EQ(Rows(), std::vector<double>(4, 10));
}

TEST_F(HostsTest, EachFinishOfAStepIsAnsweredOnce) {
  StartBoth();
  for (const auto& rank : ranks_) rank->Step(9);
  first_->TellFinished(9, absl::OkStatus(), 1);
  first_->TellFinished(9, absl::OkStatus(), 1);
  const Page::Answers& answers = ranks_[3]->page().answers;
  ASSERT_TRUE(Eventually([&] { return answers.finished == 2; }));
  EXPECT_EQ(answers.finished_first, 1);
  for (int finish = 0; finish < 2; ++finish) EXPECT_TRUE(relay_->relay()->Finished(9));
  EXPECT_FALSE(relay_->relay()->Finished(9));
  // Those of another process of the first host come after them.
  first_.reset();
  StartFirst();
  first_->TellFinished(9, absl::OkStatus(), 1);
  ASSERT_TRUE(Eventually([&] { return answers.finished == 3; }));
  EXPECT_TRUE(relay_->relay()->Finished(9));
  first_->TellFinished(12, absl::OkStatus(), 1);
  ASSERT_TRUE(Eventually([&] { return answers.finished == 4; }));
  EXPECT_EQ(answers.finished_first, 4);
  EXPECT_FALSE(relay_->relay()->Finished(9));
  first_->End();
  std::optional<absl::Status> finished;
  ASSERT_TRUE(Eventually([&] { return (finished = relay_->relay()->Finished(9)).has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*finished));
}

TEST_F(HostsTest, SnapshotsOfOneStepBeforeAndAfterARollbackAreNotMixed) {
  StartBoth();
  ranks_[2]->Take(10);
  for (const auto& rank : ranks_) {
    rank->Step(5);
    rank->pass = 1;
  }
  for (const auto& rank : ranks_) rank->Take(10);
  std::optional<std::string> why;
  ASSERT_TRUE(Eventually([&] { return (why = first_->Drop()).has_value(); }));
  EXPECT_THAT(*why, HasSubstr("step 10 is incomplete: rank 2 "));
  EXPECT_FALSE(first_->complete());
}

TEST_F(HostsTest, AnImageThatCannotBeWrittenCostsItsSnapshot) {
  StartBoth();
  // In the place of the next image, where the relay's rename fails.
  std::filesystem::create_directory(ImagePath(Folder(), 2, 1));
  std::ofstream(ImagePath(Folder(), 2, 1) + "/file") << "x";
  first_->AskForLast();
  for (const auto& rank : ranks_) {
    Page::LastStep& last = rank->page().last_step;
    ASSERT_TRUE(Eventually([&] { return last.asked == 1; }));
    rank->Take(5);
    last.result = SnapshotResult::kTaken;
    last.answered = 1;
  }
  ASSERT_TRUE(Eventually([&] { return first_->LastTaken().has_value(); }));
  EXPECT_EQ(first_->LastTaken(), SnapshotResult::kFailed);
  for (const auto& rank : ranks_) rank->Step(6);
  std::optional<std::string> why;
  ASSERT_TRUE(Eventually([&] { return (why = first_->Drop()).has_value(); }));
  EXPECT_THAT(*why, HasSubstr("rank 2 did not copy its part"));
}

TEST_F(HostsTest, AnImageThatIsCutOffCostsItsSnapshot) {
  StartBoth();
  // The first host cannot take it yet, as if it were slow.
  SlotPage& far = FarPage(3).slot;
  ASSERT_TRUE(far.Claim());
  ASSERT_TRUE(TakeAll(5));
  const std::string path = ImagePath(Folder(), 3, 1);
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(path); }));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  far.Abandon();
  ASSERT_TRUE(Eventually([&] { return ranks_[3]->page().slot.free(); }));
  EXPECT_EQ(ranks_[3]->page().slot.dropped(), 1);
  EXPECT_FALSE(first_->complete());
}

TEST_F(HostsTest, AnImageIsReadOnlyIntoItsOwnMemory) {
  const SharedMemory& memory = *ranks_[1]->memory;
  const std::string path = dir_.path() + "/image";
  ASSERT_TRUE(WriteImage(path, memory).ok());
  EXPECT_TRUE(ReadImage(path, KeyOf(memory), memory).ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadImage(path, KeyOf("other"), memory).status()));
  EXPECT_TRUE(absl::IsDataLoss(ReadImage(path, KeyOf(memory), *ranks_[2]->memory).status()));
  CancelToken cancelled;
  cancelled.Cancel();
  EXPECT_TRUE(absl::IsCancelled(ReadImage(path, KeyOf(memory), memory, cancelled).status()));
  EXPECT_TRUE(absl::IsCancelled(WriteImage(path, memory, cancelled)));
  EXPECT_TRUE(ReadImage(path, KeyOf(memory), memory).ok()) << "the file is as it was";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_TRUE(absl::IsDataLoss(ReadImage(path, KeyOf(memory), memory).status()));
}

TEST_F(HostsTest, TheOtherHostLearnsThatNothingIsMeasured) {
  StartRelay();
  auto opened = Open(0, 20);
  ASSERT_TRUE(opened.ok()) << opened.status();
  (*opened)->Fail("the losses are NaN");
  starting_.join();
  EXPECT_EQ(started_,
            absl::FailedPreconditionError("the first host measures nothing: the losses are NaN"));
}

TEST_F(HostsTest, HostsWithOtherOptionsAreRefusedOnAll) {
  for (const auto& rank : ranks_) rank->address.Withdraw();
  ranks_.resize(2);
  ASSERT_TRUE(ranks_[1]->address.Publish(ranks_[1]->place, ranks_[1]->memory->file()).ok());
  for (const int64_t rank : {2, 3}) Add(rank, "every 3");
  StartRelay();
  EXPECT_THAT(std::string(Open(0, 20).status().message()),
              HasSubstr("schedule of rank 0: every 1; of rank 2: every 3"));
  starting_.join();
  EXPECT_THAT(std::string(started_.message()), HasSubstr("schedule of rank 0: every 1"));
}

TEST_F(HostsTest, ARefusalIsNamedOnAllHosts) {
  StartRelay();
  ShardAddress::Refuse(ranks_[1]->place, "its disk is full");
  const absl::Status refused = absl::FailedPreconditionError(
      "rank 1 does not share its part of the model: its disk is full");
  EXPECT_EQ(Open(0, 20).status(), refused);
  starting_.join();
  EXPECT_EQ(started_, refused);
  ShardAddress::WithdrawRefusal(ranks_[1]->place);
  relay_.reset();
  ShardAddress::Refuse(ranks_[2]->place, "why");
  EXPECT_THAT(std::string(Open(0, 20).status().message()), HasSubstr("model: why"));
  ShardAddress::WithdrawRefusal(ranks_[2]->place);
}

TEST_F(HostsTest, ARefusalOnAnotherMachineCountsIfItStays) {
  ShardAddress::Refuse(ranks_[3]->place, "why");
  const std::string path = Directory() + "/rank-0003-refusal.json";
  std::string text;
  std::getline(std::ifstream(path), text);
  text.replace(text.find("\"host\":\"") + 8, 4, "0000");
  std::ofstream(path) << text;
  EXPECT_TRUE(FindShards(ranks_[3]->place).refusals.empty());
  RefusalWatch watch(ranks_[0]->place);
  const auto now = steady_clock::now();
  EXPECT_EQ(watch.Look(now), "");
  EXPECT_EQ(watch.Look(now + std::chrono::seconds(9)), "");
  EXPECT_EQ(watch.Look(now + std::chrono::seconds(10)),
            "rank 3 does not share its part of the model: why");
  ranks_[3]->address.Withdraw();
  ASSERT_TRUE(ranks_[3]->address.Publish(ranks_[3]->place, 0).ok());
  EXPECT_EQ(watch.Look(now + std::chrono::seconds(20)), "") << "it was an earlier launch's";
}

TEST_F(HostsTest, TheEndOfAnEarlierLaunchDoesNotEndThisOne) {
  StartBoth();
  FirstHost other{.job = KeyOf("job"), .session = KeyOf("s")};
  other.ended = 1;
  const std::string bytes = BytesOf(other, std::vector<RankOrder>());
  ASSERT_TRUE(WriteState(Directory() + "/first-host", bytes).ok());
  ASSERT_TRUE(TakeAll(5));
  EXPECT_TRUE(Eventually([&] { return first_->Begin(); }));
  first_->Release();
  first_->Done();
  EXPECT_TRUE(Eventually([&] { return ranks_[2]->page().slot.free(); }));
  ASSERT_TRUE(WriteState(Directory() + "/first-host", bytes).ok());
  first_.reset();
  EXPECT_TRUE(std::filesystem::exists(Directory() + "/first-host")) << "it is another launch's";
}

TEST_F(HostsTest, AHostThatGivesNoSignIsNamed) {
  EXPECT_THAT(std::string(Open(0, 0).status().message()),
              HasSubstr("host 1 of 2 did not share its part in '" + Directory()));
  auto relay = Open(2, 0);
  ASSERT_TRUE(relay.ok()) << relay.status();
  EXPECT_THAT(std::string((*relay)->relay()->Start(In(0), stopped_).message()),
              HasSubstr("the first host gave no sign in '" + Directory()));
}

TEST_F(HostsTest, OtherLaunchesAreLeftAlone) {
  // What the first host of another launch left.
  FirstHost left{.job = KeyOf("other"), .session = KeyOf("s")};
  left.ready = left.failed = 1;
  ASSERT_TRUE(
      WriteState(Directory() + "/first-host", BytesOf(left, std::vector<RankOrder>())).ok());
  const std::string folder = HostFolder(ranks_[2]->place, 1, KeyOf("s"));
  ASSERT_TRUE(WriteState(HostStatePath(folder), "x").ok());
  StartBoth();
  EXPECT_FALSE(std::filesystem::exists(folder));
  // One of the same name that belonged to an earlier launch: it knows none of these ranks.
  relay_.reset();
  left.job = KeyOf("job");
  first_.reset();
  ASSERT_TRUE(
      WriteState(Directory() + "/first-host", BytesOf(left, std::vector<RankOrder>())).ok());
  StartRelay();
  StartFirst();
  starting_.join();
  EXPECT_TRUE(started_.ok()) << started_;
}

TEST_F(HostsTest, TheLastHostRemovesTheFiles) {
  for (const bool first_ends_first : {true, false}) {
    StartBoth();
    (first_ends_first ? first_ : relay_)->End();
    EXPECT_TRUE(std::filesystem::exists(Directory() + "/first-host"));
    (first_ends_first ? relay_ : first_)->End();
    EXPECT_FALSE(std::filesystem::exists(Directory() + "/first-host"));
    for (const auto& entry : std::filesystem::directory_iterator(Directory())) {
      EXPECT_FALSE(entry.is_directory()) << entry.path();
    }
  }
}

}  // namespace hosts_test
}  // namespace ptqwatch::internal
