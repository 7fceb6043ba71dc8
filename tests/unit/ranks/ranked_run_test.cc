// The directories of a run's ranks, read as one run.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/journal_files.h"
#include "journal/rank_directory.h"
#include "journal/run_endpoint.h"
#include "journal/run_lock.h"
#include "journal/status_file.h"
#include "ptqwatch/offline/replay.h"
#include "ptqwatch/run_source.h"
#include "support/fake_clock.h"
#include "support/journal_fixture.h"
#include "support/rank_reports.h"

namespace ptqwatch::internal {
namespace ranked_run_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using testing::ShareOf;
using testing::WholeReport;

class Recorder final : public WatchListener {
 public:
  bool OnReport(const AnalyzedReport& report, int64_t missed) override {
    EXPECT_EQ(missed, 0);
    reports.push_back(report);
    return true;
  }
  void OnEvent(const Event& event) override { events.push_back(event); }
  void OnStatus(const RunStatus& now) override { status = now; }
  void OnNotice(std::string_view text) override { notices.emplace_back(text); }
  void OnTrouble(std::string_view text) override { troubles.emplace_back(text); }
  bool OnTick(bool) override { return on_tick(++ticks); }

  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const AnalyzedReport& report : reports) steps.push_back(report.report.step);
    return steps;
  }
  size_t CountOf(Event::Kind kind) const {
    return static_cast<size_t>(std::count_if(
        events.begin(), events.end(), [&](const Event& event) { return event.kind == kind; }));
  }

  std::function<bool(int)> on_tick = [](int) { return true; };
  std::vector<AnalyzedReport> reports;
  std::vector<Event> events;
  RunStatus status;
  std::vector<std::string> notices;
  std::vector<std::string> troubles;
  int ticks = 0;
};

class RankedRunTest : public ::testing::Test {
 protected:
  std::string Directory(int64_t rank) const { return RankDirectory(dir_.path(), rank); }

  void Append(int64_t rank, const std::string& line) {
    std::filesystem::create_directories(Directory(rank));
    const std::string path = Directory(rank) + "/" + kJournalFileName;
    WriteFile(path, (std::filesystem::exists(path) ? ReadFile(path) : "") + line + "\n");
  }
  void AppendShare(
      int64_t rank, int64_t step, int64_t ranks = 4,
      const std::function<void(Report&)>& change = [](Report&) {}) {
    Report share = ShareOf(WholeReport(step), rank, ranks);
    share.sequence = ++sequences_[rank];
    change(share);
    Append(rank, ToJson({.report = share, .verdict = {}}));
  }
  void AppendShares(int64_t step, int64_t ranks = 4) {
    for (int64_t rank = 0; rank < ranks; ++rank) AppendShare(rank, step, ranks);
  }
  void AppendEvent(int64_t rank, Event::Kind kind, const std::string& message, int64_t step = 0) {
    Event event;
    event.kind = kind;
    event.step = step;
    event.message = message;
    Append(rank, EventToJson(event));
  }
  // The rank has trained to `step`.
  void WriteStatus(int64_t rank, int64_t step, Health health = Health::kOk, bool busy = false,
                   int attempt = 1, double clock_error = 0) {
    std::filesystem::create_directories(Directory(rank));
    RunStatus status;
    status.run.run_id = "run";
    status.run.attempt = attempt;
    status.monitor.step = step;
    status.monitor.health = health;
    status.monitor.busy = busy;
    status.monitor.last_sequence = sequences_[rank];
    status.monitor.reports_total = sequences_[rank];
    status.time_unix_seconds = clock_.UnixSeconds() + clock_error;
    ASSERT_TRUE(WriteStatusFile(Directory(rank), status).ok());
  }
  void WriteStatuses(int64_t step, Health health = Health::kOk, int64_t ranks = 4) {
    for (int64_t rank = 0; rank < ranks; ++rank) WriteStatus(rank, step, health);
  }
  absl::Status Watch() { return source_->Watch(options_, &recorder_); }
  std::vector<AnalyzedReport> Reports() {
    auto reports = OpenRunDirectory(dir_.path(), &clock_)->Reports();
    EXPECT_TRUE(reports.ok()) << reports.status();
    return reports.ok() ? *std::move(reports) : std::vector<AnalyzedReport>();
  }
  static std::vector<ProbeStatus> Statuses(const Report& report) {
    std::vector<ProbeStatus> statuses;
    for (const QuantizationReport& entry : report.quantization) statuses.push_back(entry.status);
    return statuses;
  }

  TempDir dir_;
  testing::FakeClock clock_;
  std::unique_ptr<RunSource> source_ = OpenRunDirectory(dir_.path(), &clock_);
  WatchOptions options_{.status_every = std::chrono::milliseconds(0)};
  Recorder recorder_;
  std::map<int64_t, int64_t> sequences_;
};

TEST_F(RankedRunTest, IsOneRun) {
  EXPECT_FALSE(HoldsRun(dir_.path()));
  for (const int64_t step : {100, 200, 300}) AppendShares(step);
  WriteStatuses(310, Health::kStopped);
  EXPECT_TRUE(HoldsRun(dir_.path()));
  const std::vector<AnalyzedReport> reports = Reports();
  ASSERT_EQ(reports.size(), 3u);
  Replay replay;
  for (size_t i = 0; i < reports.size(); ++i) {
    Report whole = WholeReport(100 * (static_cast<int64_t>(i) + 1));
    whole.ranks = 4;
    EXPECT_EQ(ToJson(reports[i]), ToJson({.report = whole, .verdict = replay.Add(whole)}));
  }
  const auto status = source_->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->name, RunNameOf(dir_.path()));
  EXPECT_EQ(status->run.run_dir, dir_.path());
  EXPECT_EQ(status->run.run_id, "run");
  EXPECT_EQ(status->monitor.health, Health::kStopped);
  EXPECT_EQ(status->monitor.last_sequence, 3);
  EXPECT_EQ(status->monitor.reports_total, 12);
  EXPECT_EQ(status->monitor.ranks.size(), 4u);
  EXPECT_EQ(source_->Runs()->size(), 1u);
  // Each rank's directory is an ordinary one.
  EXPECT_EQ(OpenRunDirectory(Directory(2), &clock_)->Reports()->at(1).report.rank, 2);
}

TEST_F(RankedRunTest, IsReplayed) {
  for (const int64_t step : {100, 200, 300}) AppendShares(step);
  Append(2, "{damage");
  WriteStatuses(310);
  std::vector<int64_t> steps;
  const auto replayed = ReplayJournal(dir_.path(), [&](const AnalyzedReport& analyzed) {
    steps.push_back(analyzed.report.step);
    return true;
  });
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_THAT(steps, ElementsAre(100, 200, 300));
  EXPECT_EQ(replayed->reports, 3);
  EXPECT_EQ(replayed->unreadable_lines, 1);
}

TEST_F(RankedRunTest, DeliversAStepOnceAllRanksHaveIt) {
  AppendShares(100);
  for (const int64_t rank : {0, 1, 3}) AppendShare(rank, 200);
  WriteStatuses(200);
  WriteStatus(2, 200, Health::kOk, /*busy=*/true);
  recorder_.on_tick = [&](int tick) {
    WriteStatuses(210);
    WriteStatus(2, 210, Health::kOk, /*busy=*/tick <= 8);
    if (tick == 8) {
      EXPECT_THAT(recorder_.Steps(), ElementsAre(100));
      AppendShare(2, 200);
    }
    return tick < 10;
  };
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200));
  EXPECT_THAT(Statuses(recorder_.reports[1].report), Each(ProbeStatus::kOk));
  EXPECT_EQ(recorder_.status.monitor.last_sequence, 2);
  EXPECT_EQ(recorder_.status.monitor.replicas.compared_step, 200);
}

TEST_F(RankedRunTest, AReportOfNowLeavesOutAStepThatIsBeingMeasured) {
  AppendShares(100);
  for (const int64_t rank : {0, 1, 3}) AppendShare(rank, 200);
  WriteStatuses(210);
  WriteStatus(2, 210, Health::kOk, /*busy=*/true);
  EXPECT_EQ(Reports().size(), 1u);
  WriteStatus(2, 210);
  EXPECT_EQ(Reports().size(), 2u);
}

TEST_F(RankedRunTest, DoesNotWaitForARankThatTookNoSnapshot) {
  AppendShares(100);
  for (const int64_t rank : {0, 1, 3}) AppendShare(rank, 200);
  WriteStatuses(200);
  recorder_.on_tick = [&](int tick) {
    WriteStatuses(210);
    return tick < 20;  // five seconds
  };
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200));
  const QuantizationReport& owed = recorder_.reports[1].report.quantization[2];
  EXPECT_EQ(owed.status, ProbeStatus::kOtherRank);
  EXPECT_EQ(owed.status_detail, "left to rank 2");
}

TEST_F(RankedRunTest, DoesNotWaitForARankThatWasKilled) {
  AppendShares(100);
  for (const int64_t rank : {0, 1, 3}) AppendShare(rank, 200);
  WriteStatus(2, 200, Health::kOk, /*busy=*/true);
  recorder_.on_tick = [&](int tick) {
    for (const int64_t rank : {0, 1, 3}) WriteStatus(rank, 200 + tick);
    if (tick == 50) {
      EXPECT_THAT(recorder_.Steps(), ElementsAre(100));
    }
    return tick < 70;
  };
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200));
  EXPECT_THAT(recorder_.reports[1].report.quantization[2].status_detail, HasSubstr("rank 2"));
  EXPECT_EQ(recorder_.status.monitor.health, Health::kDegraded);
  EXPECT_THAT(recorder_.status.monitor.health_reason,
              AllOf(HasSubstr("rank 2: no sign of life"), ::testing::Not(HasSubstr("rank 1"))));
  EXPECT_EQ(recorder_.status.monitor.ranks.at(2).health, Health::kSilent);
  EXPECT_EQ(recorder_.status.monitor.ranks.at(1).health, Health::kOk);
}

TEST_F(RankedRunTest, WaitsForASlowRankButNotForever) {
  AppendShares(100);
  for (const int64_t rank : {0, 1, 3}) AppendShare(rank, 200);
  WriteStatuses(200);
  WriteStatus(2, 200, Health::kOk, /*busy=*/true);
  recorder_.on_tick = [&](int tick) {
    WriteStatuses(200 + tick);
    WriteStatus(2, 200 + tick, Health::kOk, /*busy=*/true);
    clock_.Advance(seconds(10));
    if (tick == 20) {
      EXPECT_THAT(recorder_.Steps(), ElementsAre(100));
    }
    if (tick == 40) {
      EXPECT_THAT(recorder_.Steps(), ElementsAre(100, 200));
    }
    if (tick == 40) AppendShare(2, 200);  // too late
    if (tick == 42) AppendShares(300);
    return tick < 45;
  };
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200, 300));
  EXPECT_EQ(recorder_.reports[1].report.quantization[2].status, ProbeStatus::kOtherRank);
  EXPECT_THAT(Statuses(recorder_.reports[2].report), Each(ProbeStatus::kOk));
  EXPECT_EQ(recorder_.reports[2].report.sequence, 3);
  // It is there when it is read anew, with the same sequences.
  WriteStatuses(300, Health::kStopped);
  EXPECT_EQ(Reports().at(1).report.quantization[2].status, ProbeStatus::kOk);
  EXPECT_EQ(Reports().at(2).report.sequence, 3);
}

TEST_F(RankedRunTest, FollowsARestartWithAnotherNumberOfRanks) {
  AppendShares(100);
  WriteStatuses(110, Health::kStopped);
  const auto begin = [](int attempt, const std::string& bits) {
    return [=](Report& report) {
      report.attempt = attempt;
      report.snapshot_digest += bits;
    };
  };
  recorder_.on_tick = [&](int tick) {
    const int64_t ranks = tick < 10 ? 3 : 5;
    const int attempt = tick < 10 ? 2 : 3;
    for (int64_t rank = 0; rank < ranks && tick > 2; ++rank) {
      WriteStatus(rank, 310, Health::kOk, /*busy=*/false, attempt);
    }
    for (int64_t rank = 0; rank < 3 && tick == 4; ++rank) {
      AppendShare(rank, 100, 3, begin(2, "redone"));
      AppendShare(rank, 200, 3, begin(2, ""));
    }
    for (int64_t rank = 0; rank < 5 && tick == 11; ++rank) {
      AppendShare(rank, 300, 5, begin(3, ""));
    }
    if (tick == 9) {
      EXPECT_THAT(recorder_.Steps(), ElementsAre(100, 100, 200));
      EXPECT_EQ(recorder_.status.monitor.health, Health::kOk);  // rank 3 is not missed
      EXPECT_EQ(recorder_.status.monitor.ranks.size(), 3u);
    }
    return tick < 15;
  };
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 100, 200, 300));
  EXPECT_EQ(recorder_.reports[3].report.ranks, 5);
  EXPECT_EQ(recorder_.reports[3].report.attempt, 3);
  EXPECT_EQ(recorder_.CountOf(Event::Kind::kReplicasDiverged), 0u);
  EXPECT_EQ(recorder_.status.monitor.ranks.size(), 5u);
  const std::vector<AnalyzedReport> anew = Reports();
  ASSERT_EQ(anew.size(), 4u);
  for (size_t i = 0; i < anew.size(); ++i) {
    EXPECT_EQ(ToJson(anew[i]), ToJson(recorder_.reports[i]));
  }
}

TEST_F(RankedRunTest, ClocksMayDifferByMinutes) {
  const auto at = [](double error) {
    return [error](Report& report) { report.snapshot_time_unix_seconds += error; };
  };
  options_.exit_when_done = true;
  recorder_.on_tick = [&](int tick) {
    for (int64_t rank = 0; rank < 4; ++rank) {
      const double error = 300.0 * static_cast<double>(rank);
      if (tick % 4 == 1) AppendShare(rank, 100 * (tick / 4 + 1), 4, at(error));
      WriteStatus(rank, 100 * tick, tick == 20 ? Health::kStopped : Health::kOk, false, 1, -error);
    }
    return tick < 40;
  };
  WriteStatuses(1);
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200, 300, 400, 500));
  for (const AnalyzedReport& report : recorder_.reports) {
    EXPECT_THAT(Statuses(report.report), Each(ProbeStatus::kOk));
  }
  EXPECT_EQ(recorder_.status.monitor.health, Health::kStopped);
  EXPECT_LE(recorder_.ticks, 22);
}

TEST_F(RankedRunTest, GoesOnBesideADamagedJournal) {
  AppendShares(100);
  Append(1, std::string(100'000, 'x') + "\n\x01\n{\"run_id\": 7}");
  std::filesystem::create_directories(Directory(3) + "/journal-000001.jsonl");  // no file
  for (const int64_t rank : {0, 1, 2}) AppendShare(rank, 200);
  WriteStatuses(210, Health::kStopped);
  options_.exit_when_done = true;
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200));
  EXPECT_EQ(recorder_.reports[1].report.quantization[1].status, ProbeStatus::kOk);
  EXPECT_EQ(recorder_.reports[1].report.quantization[3].status, ProbeStatus::kOtherRank);
  EXPECT_THAT(recorder_.troubles, Contains(HasSubstr(Directory(3))));
}

// A file system whose other hosts see a rank's files some seconds late, and its directory too.
TEST_F(RankedRunTest, WaitsForFilesThatBecomeVisibleLate) {
  TempDir elsewhere;
  const auto show = [&](int64_t rank) {
    std::filesystem::create_directories(Directory(rank));
    for (const auto& file : std::filesystem::directory_iterator(elsewhere.path())) {
      const std::string path = Directory(rank) + "/" + file.path().filename().string();
      std::filesystem::copy(file, path, std::filesystem::copy_options::overwrite_existing);
    }
  };
  std::string hidden;
  recorder_.on_tick = [&](int tick) {
    const int64_t step = 100 * (tick / 40 + 1);
    for (int64_t rank = 0; rank < 3; ++rank) {
      if (tick % 40 == 1) AppendShare(rank, step);
      WriteStatus(rank, step + 5);
    }
    if (tick % 40 == 1) {
      Report share = ShareOf(WholeReport(step), 3, 4);
      share.sequence = ++sequences_[3];
      hidden += ToJson({.report = share, .verdict = {}}) + "\n";
    }
    if (tick % 40 == 30) {
      WriteFile(elsewhere.File(kJournalFileName), hidden);
      RunStatus status;
      status.run.run_id = "run";
      status.monitor.step = step + 5;
      status.monitor.health = Health::kOk;
      status.monitor.last_sequence = sequences_[3];
      status.time_unix_seconds = clock_.UnixSeconds() - 8;
      EXPECT_TRUE(WriteStatusFile(elsewhere.path(), status).ok());
      show(3);
    }
    return tick < 115;
  };
  WriteStatus(0, 1);
  EXPECT_TRUE(Watch().ok());
  ASSERT_THAT(recorder_.Steps(), ElementsAre(100, 200, 300));
  for (const AnalyzedReport& report : recorder_.reports) {
    EXPECT_THAT(Statuses(report.report), Each(ProbeStatus::kOk));
  }
}

TEST_F(RankedRunTest, AnotherRunInTheDirectoryTakesItsPlace) {
  AppendShares(100);
  WriteStatuses(110, Health::kStopped);
  const auto other = [](Report& report) { report.run_id = "other"; };
  recorder_.on_tick = [&](int tick) {
    if (tick != 3) return tick < 10;
    for (const int64_t rank : {1, 0}) AppendShare(rank, 100, 2, other);
    for (const int64_t rank : {0, 1}) {
      RunStatus status;
      status.run.run_id = "other";
      status.monitor.health = Health::kOk;
      status.monitor.step = 110;
      status.time_unix_seconds = clock_.UnixSeconds();
      EXPECT_TRUE(WriteStatusFile(Directory(rank), status).ok());
    }
    return true;
  };
  EXPECT_TRUE(Watch().ok());
  ASSERT_EQ(recorder_.reports.size(), 2u);
  EXPECT_EQ(recorder_.reports[1].report.run_id, "other");
  EXPECT_EQ(recorder_.reports[1].report.sequence, 1);
  EXPECT_THAT(Statuses(recorder_.reports[1].report), Each(ProbeStatus::kOk));
  EXPECT_THAT(recorder_.notices, Contains(HasSubstr("another run")));
  EXPECT_EQ(recorder_.CountOf(Event::Kind::kReplicasDiverged), 0u);
  const std::vector<AnalyzedReport> now = Reports();
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].report.run_id, "other");
}

TEST_F(RankedRunTest, OneFlippedBitIsFound) {
  AppendShares(100);
  for (int64_t rank = 0; rank < 4; ++rank) {
    AppendShare(rank, 200, 4, [rank](Report& report) {
      if (rank != 2) return;
      report.snapshot_digest = "flipped";
      report.parameter_digests[1].digest = "flipped";
    });
  }
  WriteStatuses(210, Health::kStopped);
  options_.until_now = true;
  EXPECT_TRUE(Watch().ok());
  ASSERT_EQ(recorder_.CountOf(Event::Kind::kReplicasDiverged), 1u);
  const Event& event = recorder_.events.front();
  EXPECT_EQ(event.step, 200);
  EXPECT_THAT(event.message, AllOf(HasSubstr("rank 2 "), HasSubstr("'head'")));
  ASSERT_TRUE(Reports().size() == 2u);
  EXPECT_EQ(Reports()[1].report.quantization[2].status, ProbeStatus::kOtherRank);
  recorder_.events.clear();
  options_.until_now = false;
  recorder_.on_tick = [](int tick) { return tick < 6; };
  EXPECT_TRUE(Watch().ok());
  const ReplicaStatus& replicas = recorder_.status.monitor.replicas;
  EXPECT_TRUE(replicas.diverged);
  EXPECT_EQ(replicas.minority, "2");
  EXPECT_EQ(replicas.parameter, "head");
  EXPECT_EQ(replicas.diverged_step, 200);
  // Also by a reader that asks for nothing else.
  const auto status = source_->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->monitor.replicas.diverged);
  EXPECT_EQ(status->monitor.replicas.minority, "2");
}

TEST_F(RankedRunTest, AStatusCountsTheMergedReports) {
  AppendShares(100);
  for (const int64_t rank : {0, 1}) AppendShare(rank, 200);  // the others have no time for it
  AppendShare(0, 300);
  for (const int64_t rank : {2, 3}) AppendShare(rank, 400);
  WriteStatuses(410, Health::kStopped);
  const auto status = source_->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->monitor.last_sequence, 4);
}

TEST_F(RankedRunTest, EventsComeOnceAndNameTheirRank) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    AppendEvent(rank, Event::Kind::kPhaseChange, "decay", 90);
    AppendEvent(rank, Event::Kind::kAlert, "the verdict of one rank", 100);
  }
  AppendEvent(2, Event::Kind::kProbeFailed, "out of memory", 100);
  AppendShares(100);
  for (int64_t rank = 0; rank < 4; ++rank) {
    AppendEvent(rank, Event::Kind::kStopped, "stopped", 110);
  }
  WriteStatuses(110, Health::kStopped);
  options_.exit_when_done = true;
  recorder_.on_tick = [](int) { return true; };
  EXPECT_TRUE(Watch().ok());
  EXPECT_EQ(recorder_.CountOf(Event::Kind::kPhaseChange), 1u);
  EXPECT_EQ(recorder_.CountOf(Event::Kind::kAlert), 0u);
  EXPECT_EQ(recorder_.CountOf(Event::Kind::kStopped), 1u);
  ASSERT_EQ(recorder_.events.size(), 3u);
  EXPECT_THAT(recorder_.events[1].message, ::testing::AnyOf("rank 2: out of memory", "decay"));
  EXPECT_EQ(recorder_.events.back().kind, Event::Kind::kStopped);
}

// Answers as a test says.
struct AnsweringControl final : Control {
  absl::StatusOr<int64_t> Do(const Command&) override { return answer; }
  absl::StatusOr<int64_t> answer = 40;
};

TEST_F(RankedRunTest, CommandsGoToRanksThatRun) {
  AppendShares(100);
  WriteStatuses(110, Health::kStopped);
  const auto unheard = source_->Do(TakeSnapshot{});
  EXPECT_TRUE(absl::IsUnavailable(unheard.status())) << unheard.status();
  EXPECT_THAT(std::string(unheard.status().message()), HasSubstr("rank-0000"));

  std::map<int64_t, AnsweringControl> controls;
  std::vector<std::unique_ptr<FakeStatusSource>> statuses;
  std::vector<std::unique_ptr<Exporter>> endpoints;
  for (const int64_t rank : {0, 2}) {
    auto lock = RunLock::Take(Directory(rank));
    ASSERT_TRUE(lock.ok()) << lock.status();
    statuses.push_back(std::make_unique<FakeStatusSource>(Directory(rank)));
    endpoints.push_back(MakeRunEndpoint(*std::move(lock), std::chrono::hours(1)));
    ASSERT_TRUE(endpoints.back()->Start(statuses.back().get(), &controls[rank]).ok());
  }
  // One rank alone makes a slice.
  controls[0].answer = absl::FailedPreconditionError("rank 2 makes it");
  EXPECT_EQ(source_->Do(MakeSlice{}).value(), 40);
  controls[2].answer = absl::InvalidArgumentError("no such quantizer");
  const auto refused = source_->Do(MakeSlice{});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  for (const auto& endpoint : endpoints) endpoint->Stop(seconds(20));
}

}  // namespace ranked_run_test
}  // namespace ptqwatch::internal
