#ifndef PTQWATCH_TESTS_SUPPORT_JOURNAL_FIXTURE_H_
#define PTQWATCH_TESTS_SUPPORT_JOURNAL_FIXTURE_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "journal/journal_writer.h"
#include "journal/report_line.h"
#include "journal/run_history.h"
#include "ptqwatch/log.h"
#include "support/fake_status_source.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"

namespace ptqwatch::internal {

using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FakeStatusSource;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::SampleReport;
using testing::TempDir;
using testing::WriteFile;

inline std::shared_ptr<const AnalyzedReport> ReportNumber(int64_t sequence) {
  AnalyzedReport report = SampleReport();
  report.report.sequence = sequence;
  return std::make_shared<const AnalyzedReport>(std::move(report));
}

// As a resumed run reads it.
inline AnalyzedReport WithoutLayers(AnalyzedReport report) {
  LeaveLayersOut(report.report);
  for (QuantizationReport& entry : report.report.quantization) entry.loss_along.clear();
  return report;
}

// Collects what the library logs for as long as it lives.
class LogCatcher {
 public:
  LogCatcher() : state_(std::make_shared<State>()) {
    SetLogSink(Severity::kWarning, [state = state_](Severity, std::string_view message) {
      std::lock_guard<std::mutex> lock(state->mutex);
      state->messages.emplace_back(message);
      state->changed.notify_all();
    });
  }
  ~LogCatcher() { SetLogSink(Severity::kWarning, {}); }

  std::string WaitForFirst() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    const bool came =
        state_->changed.wait_for(lock, seconds(20), [&] { return !state_->messages.empty(); });
    return came ? state_->messages.front() : "no message came";
  }
  std::vector<std::string> messages() const {
    std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->messages;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> messages;
  };
  std::shared_ptr<State> state_;
};

class JournalWriterTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File(kJournalFileName); }

  RunHistory History() {
    absl::StatusOr<RunHistory> history = ReadRunHistory(dir_.path());
    EXPECT_TRUE(history.ok()) << history.status();
    return history.ok() ? *std::move(history) : RunHistory{};
  }
  std::vector<int64_t> Sequences() {
    std::vector<int64_t> sequences;
    for (const AnalyzedReport& report : History().reports) {
      sequences.push_back(report.report.sequence);
    }
    return sequences;
  }

  TempDir dir_;
  FakeStatusSource source_{dir_.path()};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TESTS_SUPPORT_JOURNAL_FIXTURE_H_
