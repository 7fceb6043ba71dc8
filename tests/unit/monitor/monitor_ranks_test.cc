// Several ranks that hold the same weights share the measurements: together they give the report of
// one, bit for bit.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ATen/Parallel.h"
#include "base/strings.h"
#include "journal/journal_files.h"
#include "journal/rank_directory.h"
#include "monitor_fixture.h"
#include "ranks/merge_reports.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace ptqwatch {
namespace monitor_ranks_test {

using internal::RankDirectory;
using internal::RanksIn;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::TempDir;
using testing::TinyTrainer;

MonitorOptions Options(int64_t rank, int64_t ranks) {
  MonitorOptions options;
  options.on_failure = OnFailure::kError;
  options.schedule.every = 10;
  options.duty_cycle = 1.0;
  options.adapt_plan = false;
  options.averaging.window = 2;
  options.averaging.decay = 0.5;
  options.curvature.trace_relative_stderr = 100;  // 8 probe vectors
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8},
                        {.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 8},
                        {.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 8},
                        {.method = QuantizationMethod::kGptq, .bits = 4, .group_size = 8}};
  options.rank = rank;
  options.ranks = ranks;
  return options;
}

std::vector<std::unique_ptr<Monitor>> MakeMonitors(const TinyTrainer& trainer, int64_t ranks,
                                                   const std::string& run_dir,
                                                   const std::string& run_id = {},
                                                   bool little = false) {
  std::vector<std::unique_ptr<Monitor>> monitors;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    MonitorOptions options = Options(rank, ranks);
    options.run_dir = run_dir;
    options.run_id = run_id;
    if (little) {
      options.curvature.enabled = false;
      options.averaging.enabled = false;
      options.noise_relative_norm = 0;
    }
    auto made = Monitor::Create(trainer.MakeSubject(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    monitors.push_back(*std::move(made));
  }
  return monitors;
}

// The ranks' reports of each snapshot.
struct Trained {
  std::vector<std::vector<Report>> reports;
  std::string weights;
};

Trained Train(int64_t ranks, const std::string& run_id = "run") {
  Trained run;
  TinyTrainer trainer(/*seed=*/7);
  const auto monitors = MakeMonitors(trainer, ranks, "", run_id);
  for (int64_t step = 1; step <= 20; ++step) {
    const double loss = trainer.Step();
    for (const auto& monitor : monitors) {
      monitor->OnStep({.step = step, .learning_rate = 1e-2, .loss = loss});
    }
    if (step % 10 != 0 || ranks == 0) continue;
    run.reports.emplace_back();
    for (const auto& monitor : monitors) {
      EXPECT_TRUE(monitor->Finish(seconds(60)).ok());
      run.reports.back().push_back(monitor->latest()->report);
    }
  }
  run.weights = trainer.Bytes();
  return run;
}

bool IsOther(const auto& part) { return part.status == ProbeStatus::kOtherRank; }

// The curvature that the ranks have measured, together. Each part must be one rank's, and all that
// have one must have found the same eigenvalues.
std::optional<CurvatureReport> CurvatureTogether(const std::vector<Report>& ranks) {
  std::optional<CurvatureReport> all;
  const CurvatureReport* any = nullptr;
  const CurvatureReport* trace = nullptr;
  int64_t products = 0;
  for (const Report& report : ranks) {
    if (!report.curvature || IsOther(*report.curvature)) continue;
    const CurvatureReport& part = *report.curvature;
    products += part.hessian_products;
    if (any == nullptr) any = &part;
    EXPECT_EQ(part.top_eigenvalues, any->top_eigenvalues);
    EXPECT_EQ(part.trace.has_value(), !part.trace_status);
    EXPECT_EQ(part.layers.empty(), part.trace_status == ProbeStatus::kOtherRank);
    if (!part.trace_status) {
      EXPECT_EQ(trace, nullptr) << "measured twice";
      trace = &part;
    }
    if (!part.edge_of_stability_status) {
      EXPECT_FALSE(all) << "measured twice";
      all = part;
    }
  }
  if (!all || trace == nullptr) return std::nullopt;
  all->trace = trace->trace;
  all->trace_stderr = trace->trace_stderr;
  all->trace_interval = trace->trace_interval;
  all->trace_probes = trace->trace_probes;
  all->trace_batch_stderr = trace->trace_batch_stderr;
  all->weighted_trace = trace->weighted_trace;
  all->weighted_trace_stderr = trace->weighted_trace_stderr;
  all->trace_status.reset();
  all->trace_detail.clear();
  all->layers = trace->layers;
  all->hessian_products = products;
  return all;
}

// Whether a rank has measured the trace, the edge of stability and the error of each quantizer.
bool HasAllCurvature(const Report& report) {
  return report.curvature && report.curvature->trace && report.curvature->edge_of_stability_ratio &&
         std::all_of(report.quantization.begin(), report.quantization.end(),
                     [](const auto& entry) { return entry.predicted_delta_nats.has_value(); });
}

// All measurements of the ranks in one report. Counts the parts beside the quantizers.
Report Together(const std::vector<Report>& ranks, int& parts) {
  Report all = ranks[0];
  for (const Report& report : ranks) {
    if (report.probe_tokens > all.probe_tokens) all = report;
  }
  all.curvature = CurvatureTogether(ranks);
  if (all.curvature) ++parts;
  all.averaging.clear();
  all.mixed_precision.clear();
  all.noise.reset();
  for (const Report& report : ranks) {
    EXPECT_EQ(report.snapshot_digest, all.snapshot_digest);
    EXPECT_EQ(report.parameter_digests, all.parameter_digests);
    all.plan->curvature_sequences =
        std::max(all.plan->curvature_sequences, report.plan->curvature_sequences);
    all.plan->curvature_every = std::max(all.plan->curvature_every, report.plan->curvature_every);
    if (report.noise && !IsOther(*report.noise)) {
      EXPECT_FALSE(all.noise) << "measured twice";
      all.noise = report.noise;
      ++parts;
    }
    if (!report.averaging.empty() && !IsOther(report.averaging[0])) {
      EXPECT_THAT(all.averaging, SizeIs(0)) << "measured twice";
      all.averaging = report.averaging;
      ++parts;
    }
    if (!report.mixed_precision.empty() && !IsOther(report.mixed_precision[0])) {
      all.mixed_precision = report.mixed_precision;
    }
  }
  for (size_t i = 0; i < all.quantization.size(); ++i) {
    int owners = 0;
    for (const Report& report : ranks) {
      if (IsOther(report.quantization[i])) continue;
      all.quantization[i] = report.quantization[i];
      ++owners;
    }
    EXPECT_EQ(owners, 1) << ShortName(KeyOf(all.quantization[i]));
  }
  return all;
}

// Without what depends on times, and on the rank.
std::string Numbers(Report report) {
  report.cost.clear();
  report.snapshot_time_unix_seconds = 0;
  report.trigger = SnapshotTrigger::kUnknown;  // Finish, if the monitor was busy at the step
  report.rank.reset();
  report.ranks.reset();
  report.parameter_digests.clear();
  return ToJson({.report = report, .verdict = {}});
}

// Monitors that compute at once must not wait for each other's threads.
class RanksTest : public ::testing::TestWithParam<int64_t> {
 protected:
  RanksTest() { at::set_num_threads(1); }
};

TEST_P(RanksTest, TogetherGiveTheReportOfOne) {
  const int64_t ranks = GetParam();
  static const Trained alone = Train(1);
  static const Trained unwatched = Train(0);
  const Trained several = Train(ranks);
  EXPECT_TRUE(unwatched.weights == several.weights) << "training does not change";
  ASSERT_EQ(alone.reports.size(), 2u);
  ASSERT_EQ(several.reports.size(), 2u);
  for (size_t i = 0; i < alone.reports.size(); ++i) {
    const Report& one = alone.reports[i][0];
    EXPECT_EQ(one.ranks, std::nullopt);
    EXPECT_THAT(one.parameter_digests, SizeIs(0));
    for (const QuantizationReport& entry : one.quantization) {
      ASSERT_EQ(entry.status, ProbeStatus::kOk) << entry.status_detail;
    }
    ASSERT_EQ(one.curvature->status, ProbeStatus::kOk) << one.curvature->status_detail;
    for (const AveragingReport& average : one.averaging) {
      EXPECT_TRUE(average.change_stderr_nats);
      EXPECT_THAT(average.quantization, SizeIs(2));
    }
    ASSERT_TRUE(HasAllCurvature(one)) << one.curvature->edge_of_stability_detail;
    ASSERT_FALSE(one.mixed_precision.empty());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Report& part = several.reports[i][static_cast<size_t>(rank)];
      EXPECT_EQ(part.rank, rank);
      EXPECT_EQ(part.ranks, ranks);
      EXPECT_FALSE(part.parameter_digests.empty());
      EXPECT_FALSE(HasAllCurvature(part));
      EXPECT_LT(part.curvature->hessian_products, one.curvature->hessian_products);
    }
    int parts = 0;
    const Report merged = Together(several.reports[i], parts);
    EXPECT_EQ(parts, i == 0 ? 2 : 3) << "averages need two snapshots";
    EXPECT_EQ(Numbers(merged), Numbers(one));
    Report read = internal::MergeReports(several.reports[i], /*complete=*/true);
    read.sequence = one.sequence;
    EXPECT_EQ(Numbers(read), Numbers(one)) << "as readers of the run merge it";
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, RanksTest, ::testing::Values(2, 3, 4, 7));

struct MonitorRanks : ::testing::Test {
  MonitorRanks() { at::set_num_threads(1); }
};

TEST_F(MonitorRanks, SayWhoMeasuresAPart) {
  TinyTrainer trainer;
  const auto monitors = MakeMonitors(trainer, 4, "");
  std::vector<Report> reports;
  for (const auto& monitor : monitors) {
    monitor->OnStep({.step = 10, .learning_rate = 1e-2});
    ASSERT_TRUE(monitor->Finish(seconds(60)).ok());
    reports.push_back(monitor->latest()->report);
    EXPECT_EQ(monitor->status().health, Health::kOk);
  }
  EXPECT_THAT(monitors[2]->Describe(), HasSubstr("rank 2 of 4"));
  for (size_t i = 0; i < 4; ++i) {
    size_t owner = 4;
    for (size_t rank = 0; rank < 4; ++rank) {
      if (!IsOther(reports[rank].quantization[i])) owner = rank;
    }
    for (size_t rank = 0; rank < 4; ++rank) {
      if (rank == owner) continue;
      const QuantizationReport& entry = reports[rank].quantization[i];
      EXPECT_EQ(entry.status_detail, internal::StrCat("left to rank ", owner));
      EXPECT_EQ(entry.delta_nats, std::nullopt);
    }
  }
}

TEST_F(MonitorRanks, ShareFurtherProbeSets) {
  TinyTrainer trainer;
  const auto reports = [&](int64_t ranks) {
    std::vector<Report> shares;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      MonitorOptions options = Options(rank, ranks);
      options.further_probe_sets = 2;
      const auto monitor = *Monitor::Create(trainer.MakeSubject(), options);
      monitor->OnStep({.step = 10, .learning_rate = 1e-2});
      EXPECT_TRUE(monitor->Finish(seconds(60)).ok());
      shares.push_back(monitor->latest()->report);
    }
    return shares;
  };
  const Report alone = reports(1)[0];
  ASSERT_EQ(alone.pooled->status, ProbeStatus::kOk) << alone.pooled->status_detail;
  EXPECT_EQ(alone.plan->further_probe_sets, 2);
  EXPECT_GT(alone.pooled->probe_tokens, 2 * alone.quantization[2].probe_tokens);
  std::vector<Report> shares = reports(3);
  for (const Report& share : shares) EXPECT_EQ(share.fingerprint, alone.fingerprint);
  const Report merged = internal::MergeReports(shares, /*complete=*/true);
  EXPECT_EQ(merged.pooled, alone.pooled);
  EXPECT_EQ(merged.plan, alone.plan);
}

TEST_F(MonitorRanks, LeaveSlicesAndCooldownsToOne) {
  TinyTrainer trainer;
  const TempDir dir;
  const auto monitors = MakeMonitors(trainer, 3, dir.path());
  int accepted = 0;
  for (const auto& monitor : monitors) {
    const absl::Status slice =
        monitor->control().Do(MakeSlice{.method = QuantizationMethod::kGptq, .bits = 3}).status();
    accepted += slice.ok() ? 1 : 0;
    if (!slice.ok()) {
      EXPECT_THAT(std::string(slice.message()),
                  AllOf(HasSubstr("no slice: rank "), HasSubstr(" makes it")));
    }
  }
  EXPECT_EQ(accepted, 1);
}

TEST_F(MonitorRanks, OneMakesSlicesOfTheQuantizersOfAll) {
  TinyTrainer trainer;
  const TempDir dir;
  const auto monitors = MakeMonitors(trainer, 4, dir.path());
  for (const auto method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    Monitor* maker = nullptr;
    for (const auto& monitor : monitors) {
      const MakeSlice slice{.method = method, .bits = 3, .points = 3};
      if (monitor->control().Do(slice).ok()) maker = monitor.get();
    }
    ASSERT_NE(maker, nullptr);
    for (int64_t step = maker->status().step.value_or(0) + 10, last = step + 10; step <= last;
         step += 10) {
      trainer.Step();
      maker->OnStep({.step = step, .learning_rate = 1e-2});
      ASSERT_TRUE(maker->Finish(seconds(60)).ok());
    }
    const SliceStatus slice = maker->status().slice;
    EXPECT_EQ(slice.state, SliceState::kDone) << slice.error;
  }
}

TEST_F(MonitorRanks, HoldOnlyWhatTheirPartsNeed) {
  TinyTrainer trainer;
  const auto monitors = MakeMonitors(trainer, 4, "");
  int with_optimizer = 0;
  for (const auto& monitor : monitors) {
    const std::string text = monitor->Describe();
    const std::string before = text.substr(0, text.find(" (this one)"));
    const bool edge = before.find("edge of stability", before.rfind('\n')) != std::string::npos;
    const bool staged = text.find("\noptimizer: adamw") != std::string::npos;
    EXPECT_EQ(staged, edge) << text;
    with_optimizer += staged ? 1 : 0;
  }
  EXPECT_EQ(with_optimizer, 1);
}

TEST_F(MonitorRanks, EachWritesADirectoryOfOneRun) {
  TinyTrainer trainer;
  const TempDir dir;
  {
    const auto monitors = MakeMonitors(trainer, 2, dir.File("my run"), "", /*little=*/true);
    for (const auto& monitor : monitors) {
      monitor->OnStep({.step = 10, .learning_rate = 1e-2});
      ASSERT_TRUE(monitor->Finish(seconds(60)).ok());
      EXPECT_EQ(monitor->latest()->report.run_id, "my run");
    }
  }
  EXPECT_THAT(RanksIn(dir.File("my run")), ElementsAre(0, 1));
  int entries = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(dir.File("my run"))) {
    ++entries;
  }
  EXPECT_EQ(entries, 2) << "nothing but the ranks'";
  for (const int64_t rank : {0, 1}) {
    EXPECT_TRUE(std::filesystem::exists(RankDirectory(dir.File("my run"), rank) + "/" +
                                        internal::kJournalFileName));
  }
}

TEST_F(MonitorRanks, ResumeAsAnotherNumber) {
  TinyTrainer trainer;
  const TempDir dir;
  int64_t step = 0;
  for (const int64_t ranks : {4, 3, 5, 1}) {
    step += 10;
    trainer.Step();
    const auto monitors = MakeMonitors(trainer, ranks, dir.File("run"), "", /*little=*/true);
    for (size_t rank = 0; rank < monitors.size(); ++rank) {
      monitors[rank]->OnStep({.step = step, .learning_rate = 1e-2});
      ASSERT_TRUE(monitors[rank]->Finish(seconds(60)).ok());
      const Report report = monitors[rank]->latest()->report;
      EXPECT_EQ(report.run_id, "run");
      EXPECT_EQ(report.rank, static_cast<int64_t>(rank));
      EXPECT_EQ(report.ranks, ranks);
      EXPECT_EQ(report.sequence, rank == 0 ? step / 10 : report.sequence);
    }
  }
  EXPECT_THAT(RanksIn(dir.File("run")), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(MonitorRanks, ShowWhichParameterDiffers) {
  std::vector<Report> reports;
  std::string flipped;
  for (int64_t rank = 0; rank < 2; ++rank) {
    TinyTrainer trainer;
    trainer.Step();
    auto monitor = Monitor::Create(trainer.MakeSubject(), Options(rank, 2));
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    if (rank == 1) {
      const auto subject = trainer.MakeSubject();
      const NamedTensor named = subject->LiveTensors().at(3);
      flipped = named.name;
      *static_cast<uint32_t*>(named.tensor.data_ptr()) ^= 1;
    }
    (*monitor)->OnStep({.step = 10, .learning_rate = 1e-2});
    ASSERT_TRUE((*monitor)->Finish(seconds(60)).ok());
    reports.push_back((*monitor)->latest()->report);
  }
  EXPECT_NE(reports[0].snapshot_digest, reports[1].snapshot_digest);
  std::vector<std::string> differ;
  ASSERT_EQ(reports[0].parameter_digests.size(), reports[1].parameter_digests.size());
  for (size_t i = 0; i < reports[0].parameter_digests.size(); ++i) {
    const ParameterDigest& digest = reports[1].parameter_digests[i];
    if (!(digest == reports[0].parameter_digests[i])) differ.push_back(digest.name);
  }
  EXPECT_THAT(differ, ElementsAre(flipped));
}

TEST_F(MonitorRanks, RefuseAScheduleByTheClock) {
  TinyTrainer trainer;
  MonitorOptions options = Options(0, 2);
  options.schedule.every_seconds = 60;
  const absl::Status status = Monitor::Create(trainer.MakeSubject(), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("MonitorOptions.schedule.every_seconds = 60: must be zero with ranks = 2"));
}

TEST_F(MonitorRanks, WithoutAPlaceMeasureNothingAndWriteNothing) {
  TinyTrainer trainer;
  const TempDir dir;
  MonitorOptions options = Options(5, 2);
  options.on_failure = OnFailure::kInert;
  options.run_dir = dir.File("run");
  const auto monitor = *Monitor::Create(trainer.MakeSubject(), options);
  EXPECT_THAT(std::string(monitor->creation_status().message()),
              HasSubstr("MonitorOptions.rank = 5: must be from 0 to MonitorOptions.ranks - 1 = 1"));
  EXPECT_FALSE(std::filesystem::exists(dir.File("run")));
}

// Steps of a second each, on a clock that stands still otherwise.
struct RanksScheduleTest : MonitorTest {
  void Create(double duty_cycle) {
    at::set_num_threads(1);
    MonitorOptions options;
    options.schedule.every = 20;
    options.curvature.enabled = false;
    options.averaging.enabled = false;
    options.noise_relative_norm = 0;
    options.duty_cycle = duty_cycle;
    options.clock = &clock;
    options.rank = 0;
    options.ranks = 2;
    MonitorTest::Create(options);
  }
  void Steps(int64_t first, int64_t last, bool decays) {
    for (int64_t step = first; step <= last; ++step) {
      clock.Advance(seconds(1));
      trainer.Step();
      const double left = decays ? static_cast<double>(161 - step) / 121 : 1;
      monitor->OnStep({.step = step, .learning_rate = 1e-2 * left});
      while (monitor->status().busy ||
             monitor->status().reports_total < Count(SnapshotResult::kTaken)) {
        std::this_thread::yield();
      }
    }
  }
  std::vector<int64_t> ReportedSteps() {
    std::vector<int64_t> steps;
    for (const auto& report : recording->Reports()) steps.push_back(report->report.step);
    return steps;
  }
};

TEST_F(RanksScheduleTest, TakesTheGridOfADecayIfThereIsTime) {
  Create(1);
  Steps(1, 40, /*decays=*/false);
  Steps(41, 70, /*decays=*/true);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20, 40, 45, 50, 55, 60, 65, 70));
}

TEST_F(RanksScheduleTest, StretchesTheGridIfThereIsNoTime) {
  // A second of work costs a hundred years of rest.
  Create(1e-12);
  Steps(1, 80, /*decays=*/false);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20));
  bool announced = false;
  for (const Event& event : recording->Events()) {
    announced = announced || (event.kind == Event::Kind::kPlanChanged &&
                              event.message.find("intervals of the schedule") != std::string::npos);
  }
  EXPECT_TRUE(announced);
}

TEST_F(RanksScheduleTest, TakesARequestedSnapshotAtAStepOfAll) {
  Create(1);
  Steps(1, 22, /*decays=*/false);
  ASSERT_TRUE(monitor->control().Do(TakeSnapshot{}).ok());
  ASSERT_TRUE(monitor->control().Do(Pause{}).ok());  // shows when both are carried out
  ASSERT_TRUE(testing::Eventually([&] { return monitor->status().paused; }));
  Steps(23, 39, /*decays=*/false);
  EXPECT_THAT(ReportedSteps(), ElementsAre(20, 25));
}

}  // namespace monitor_ranks_test
}  // namespace ptqwatch
