// Verdicts on recorded runs of the demo: 3,200 of 16,000 steps of linear decay, a constant learning
// rate, and a cosine. tests/data/verdicts/record makes the recordings.

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/analyzer.h"
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

/// What the verdicts of one run say.
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

// As a live run on a busy machine has them: half as many snapshots on the plateau, curvature with
// every third.
TEST(RecordedRuns, SparseRunsAreJudgedTheSame) {
  size_t found = 0;
  int alarms = 0;
  for (const auto& [name, run] : Recorded("decay")) {
    int kept = 0;
    const Course course = Replay(run, kDecayBegins, [&](Report& report) {
      if (report.step <= kDecayBegins && report.step % 800 != 0) return false;
      if (++kept % 3 != 0) report.curvature.reset();
      if (!report.curvature) {
        for (QuantizationReport& entry : report.quantization) entry.curvature_along_error.reset();
      }
      return true;
    });
    alarms += course.alarms_before_decay;
    found += course.first_in_decay.value_or(kSteps) <= kDecayBegins + 2400;
  }
  RecordProperty("found", static_cast<int>(found));
  EXPECT_GE(found + 2, Recorded("decay").size());
  EXPECT_LE(alarms, 1);
}

}  // namespace recorded_runs_test
}  // namespace ptqwatch::internal
