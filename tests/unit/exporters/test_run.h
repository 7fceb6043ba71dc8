#ifndef PTQWATCH_TESTS_UNIT_EXPORTERS_TEST_RUN_H_
#define PTQWATCH_TESTS_UNIT_EXPORTERS_TEST_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "feed/served_runs.h"
#include "support/sample_report.h"

namespace ptqwatch::testing {

/// Records the commands that it receives.
class FakeControl final : public Control {
 public:
  absl::StatusOr<int64_t> Do(const Command& command) override {
    commands.push_back(command);
    return answer;
  }
  std::vector<Command> commands;
  absl::StatusOr<int64_t> answer = 1;
};

/// A served run whose status, reports and events are set by the test. Not thread-safe.
class TestRun {
 public:
  /// Calls `wake` after each change.
  TestRun(internal::ServedRuns* runs, std::string name, internal::ReportForms forms,
          const internal::ReportHistory::Limits& limits, std::function<void()> wake)
      : runs_(runs),
        run_(std::make_shared<internal::ServedRun>(std::move(name), &control, limits,
                                                   std::move(forms), std::move(wake))) {
    status_.run.run_id = "run-1";
    status_.run.fingerprint = "f00d";
    status_.run.device = "cpu";
    status_.monitor.health = Health::kOk;
    status_.monitor.step = 16010;
    run_->SetStatus(status_);
  }
  ~TestRun() { End(); }

  void ShowStatus() { runs_->Add(run_); }
  void Open() { runs_->Open(run_); }
  void Show() {
    ShowStatus();
    Open();
  }
  /// Ends the run and removes it from the server.
  void End() { runs_->Remove(run_); }
  template <typename Change>
  void Set(Change change) {
    change(status_);
    run_->SetStatus(status_);
  }
  void Publish(const AnalyzedReport& report) { run_->Publish(report); }
  void Publish(const Event& event) { run_->Publish(event); }
  /// Publishes a report that is about `padding` bytes larger in every form.
  void Publish(int64_t sequence, size_t padding = 0) {
    AnalyzedReport report = SampleReport();
    report.report.sequence = sequence;
    report.report.step = 100 * sequence;
    if (padding > 0) report.report.probe_status_detail = std::string(padding, 'x');
    Publish(report);
  }

  FakeControl control;

 private:
  internal::ServedRuns* const runs_;
  const std::shared_ptr<internal::ServedRun> run_;
  RunStatus status_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_EXPORTERS_TEST_RUN_H_
