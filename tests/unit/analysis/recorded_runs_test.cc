// Verdicts on recorded runs of the demo: 3,200 of 16,000 steps of linear decay, a constant learning
// rate, and a cosine; and of a study of learning-rate decay. tests/data/verdicts/record makes the
// recordings.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/analyzer.h"
#include "analysis_fixture.h"
#include "gtest/gtest.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {
namespace recorded_runs_test {

constexpr int64_t kDecayBegins = 12800;
constexpr int64_t kSteps = 16000;

using Run = std::vector<Report>;

const std::map<std::string, Run>& Recorded(const std::string& kind) {
  static std::map<std::string, std::map<std::string, Run>> read;
  std::map<std::string, Run>& runs = read[kind];
  if (!runs.empty()) return runs;
  std::ifstream file(std::string(PTQWATCH_VERDICT_DATA) + "/" + kind + ".jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto report = FromJson(line);
    EXPECT_TRUE(report.ok()) << report.status();
    if (report.ok()) runs[report->report.run_id].push_back(report->report);
  }
  return runs;
}

/// A summary of the verdicts of one run.
struct Course {
  int alarms_before_decay = 0;  ///< that begin there
  std::optional<int64_t> first_in_decay;
  VerdictState last = VerdictState::kUnknown;
  int snapshots = 0;
};

Course Replay(
    const Run& run, int64_t decay_begins,
    const std::function<bool(Report&)>& keep = [](Report&) { return true; }) {
  Analyzer analyzer;
  Course course;
  bool before = false;
  for (Report report : run) {
    if (!keep(report)) continue;
    const Verdict verdict = analyzer.Add(report);
    const bool now = IsAlarm(verdict.state);
    if (report.step <= decay_begins) {
      course.alarms_before_decay += now && !before;
      ++course.snapshots;
    } else if (now && !course.first_in_decay) {
      course.first_in_decay = report.step;
    }
    before = now;
    course.last = verdict.state;
  }
  return course;
}

TEST(RecordedRuns, ThereAreEnough) {
  EXPECT_GE(Recorded("decay").size(), 20U);
  EXPECT_GE(Recorded("constant").size(), 20U);
  EXPECT_GE(Recorded("cosine").size(), 10U);
}

TEST(RecordedRuns, ADecayIsFoundBeforeHalfOfItIsOver) {
  const int64_t half = (kDecayBegins + kSteps) / 2;
  size_t found = 0, degraded_at_end = 0;
  for (const auto& [name, run] : Recorded("decay")) {
    const Course course = Replay(run, kDecayBegins);
    found += course.first_in_decay.value_or(kSteps) <= half;
    degraded_at_end += course.last == VerdictState::kDecayDegradation;
    SCOPED_TRACE(name);
    EXPECT_LE(course.first_in_decay.value_or(kSteps), half + 800);
  }
  RecordProperty("found", static_cast<int>(found));
  EXPECT_GE(found + 1, Recorded("decay").size());
  EXPECT_EQ(degraded_at_end, Recorded("decay").size());
}

TEST(RecordedRuns, AtMostOneFalseAlarm) {
  int alarms = 0, snapshots = 0;
  for (const std::string kind : {"decay", "constant"}) {
    for (const auto& [name, run] : Recorded(kind)) {
      const Course course = Replay(run, kind == "decay" ? kDecayBegins : kSteps);
      alarms += course.alarms_before_decay;
      snapshots += course.snapshots;
      if (course.alarms_before_decay > 0) RecordProperty(name, course.alarms_before_decay);
    }
  }
  RecordProperty("snapshots", snapshots);
  EXPECT_LE(alarms, 1) << "in " << snapshots << " snapshots";
}

TEST(RecordedRuns, ACosineEndsDegraded) {
  size_t found = 0;
  for (const auto& [name, run] : Recorded("cosine")) {
    const Course course = Replay(run, 0);
    found += course.last == VerdictState::kDecayDegradation &&
             course.first_in_decay.value_or(kSteps) < kSteps;
    // Not before the learning rate has lost half.
    EXPECT_GE(course.first_in_decay.value_or(kSteps), kSteps / 2) << name;
  }
  EXPECT_GE(10 * found, 8 * Recorded("cosine").size());
}

TEST(RecordedRuns, AnOnsetIsNotAfterItsAlarmAndMovesToNoLaterStep) {
  int alarms = 0;
  for (const std::string kind : {"decay", "constant", "cosine", "study"}) {
    for (const auto& [name, run] : Recorded(kind)) {
      SCOPED_TRACE(name);
      Analyzer analyzer;
      std::optional<int64_t> before;
      for (const Report& report : run) {
        const Verdict verdict = analyzer.Add(report);
        EXPECT_LE(verdict.onset_step.value_or(0), before.value_or(report.step));
        if (verdict.onset_low_step) {
          EXPECT_LE(*verdict.onset_low_step, *verdict.onset_step);
          EXPECT_LE(*verdict.onset_step, *verdict.onset_high_step);
        }
        before = verdict.onset_step;
        if (!IsAlarm(verdict.state)) continue;
        ++alarms;
        const auto words = 1 + std::count(verdict.summary.begin(), verdict.summary.end(), ' ');
        EXPECT_LE(words, 25) << verdict.summary;
      }
    }
  }
  EXPECT_GT(alarms, 100);
}

struct SparseRuns {
  size_t runs = 0;
  size_t by_half = 0;  // of the decay
  size_t by_three_quarters = 0;
  double mean_share = 0;  // of the decay at the first alarm; 1 without one
  int alarms = 0;         // before it
};

// As a live run on a busy machine has them: half as many snapshots on the plateau, curvature with
// every third.
void AddSparse(const Run& run, int64_t decay_begins, bool with_noise, SparseRuns& sparse) {
  int kept = 0;
  const Course course = Replay(run, decay_begins, [&](Report& report) {
    if (report.step <= decay_begins && report.step % 800 != 0) return false;
    if (!with_noise) report.noise.reset();
    if (++kept % 3 != 0) {
      report.curvature.reset();
      for (QuantizationReport& entry : report.quantization) entry.curvature_along_error.reset();
    }
    return true;
  });
  const double share = static_cast<double>(course.first_in_decay.value_or(kSteps) - decay_begins) /
                       static_cast<double>(kSteps - decay_begins);
  ++sparse.runs;
  sparse.by_half += share <= 0.5;
  sparse.by_three_quarters += share <= 0.75;
  sparse.mean_share += share;
  sparse.alarms += course.alarms_before_decay;
}

TEST(RecordedRuns, SparseRunsAreJudgedTheSame) {
  SparseRuns sparse;
  for (const auto& [name, run] : Recorded("decay")) AddSparse(run, kDecayBegins, true, sparse);
  RecordProperty("by_half", static_cast<int>(sparse.by_half));
  RecordProperty("found", static_cast<int>(sparse.by_three_quarters));
  EXPECT_GE(sparse.by_three_quarters + 2, Recorded("decay").size());
  EXPECT_LE(sparse.alarms, 1);
}

// The decays of a study of learning-rate decay, with noise. Those of its trunk lack the plateau,
// which is the trunk's.
SparseRuns JudgeStudy(bool with_noise) {
  SparseRuns sparse;
  const auto& runs = Recorded("study");
  for (const auto& [name, recorded] : runs) {
    if (name.starts_with("trunk")) continue;
    Run run;
    const int64_t first = recorded.front().step;
    if (recorded.front().lr_phase == LrPhase::kDecay) {
      for (const Report& report : runs.at(std::string("trunk-") + name.back())) {
        if (report.step < first) run.push_back(report);
      }
    }
    run.insert(run.end(), recorded.begin(), recorded.end());
    int64_t decay_begins = 0;
    for (const Report& report : run) {
      if (report.lr_phase != LrPhase::kDecay) decay_begins = report.step;
    }
    AddSparse(run, decay_begins, with_noise, sparse);
  }
  sparse.mean_share /= static_cast<double>(sparse.runs);
  return sparse;
}

TEST(RecordedRuns, NoiseShowsTheDecayOfASparseRunEarlier) {
  const SparseRuns without = JudgeStudy(/*with_noise=*/false);
  const SparseRuns with = JudgeStudy(/*with_noise=*/true);
  RecordProperty("by_half", static_cast<int>(with.by_half));
  RecordProperty("by_half_without", static_cast<int>(without.by_half));
  RecordProperty("mean_percent", static_cast<int>(100 * with.mean_share));
  RecordProperty("mean_percent_without", static_cast<int>(100 * without.mean_share));
  EXPECT_EQ(with.runs, 30U);
  EXPECT_GE(with.by_half, without.by_half + 5);
  EXPECT_LT(with.mean_share, without.mean_share);
  // Sharpness-aware decays with a large radius degrade little.
  EXPECT_GE(with.by_three_quarters + 2, with.runs);
  EXPECT_EQ(with.alarms, 0);
}

}  // namespace recorded_runs_test
}  // namespace ptqwatch::internal
