#include "journal/journal_writer.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/report_queue.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/run_directory.h"

namespace ptqwatch::internal {
namespace {

// A report, or else an event. The report becomes JSON on the writing thread.
struct Line {
  std::shared_ptr<const AnalyzedReport> report;
  std::shared_ptr<const Event> event;
};

// The queue's thread alone uses it.
struct Output {
  std::unique_ptr<JournalFile> file;
  bool unsynced = false;
  RateLimitedLog failed;

  bool Write(const Line& line) {
    const absl::Status status = Guard([&] {
      return file->Append(line.report ? ToJson(*line.report) : EventToJson(*line.event));
    });
    if (!status.ok()) failed(Severity::kError, Message(status));
    unsynced |= status.ok();
    return status.ok();
  }

  void Sync() {
    if (!std::exchange(unsynced, false)) return;
    const absl::Status status = file->Sync();
    if (!status.ok()) failed(Severity::kError, Message(status));
  }
};

class JournalWriter final : public Exporter {
 public:
  explicit JournalWriter(WriteFunction write) : write_(std::move(write)) {}
  ~JournalWriter() override { Stop(std::chrono::seconds(2)); }

  std::string_view name() const override { return "journal"; }

  absl::Status Start(StatusSource* source, Control*) override {
    const std::string& run_dir = source->run().run_dir;
    if (run_dir.empty()) {
      return absl::FailedPreconditionError("a journal needs MonitorOptions::run_dir");
    }
    if (queue_ != nullptr) {
      return absl::FailedPreconditionError("the journal was started before");
    }
    auto output = std::make_shared<Output>();
    PTQWATCH_ASSIGN_OR_RETURN(output->file,
                              JournalFile::Open(StrCat(run_dir, "/", kJournalFileName), write_));
    PTQWATCH_ASSIGN_OR_RETURN(
        queue_,
        ReportQueue<Line>::Start(
            {.thread_name = "ptqw-journal",
             .capacity = kJournalQueue,
             // The newest lines matter most: a resumed run continues their sequence numbers.
             .overflow = QueueOverflow::kDropOldest,
             .leave_behind = true,
             .handle = [output](const Line& line) { return output->Write(line); },
             .rest = [output] { output->Sync(); },
             .dropped =
                 [source](QueueDrop reason) {
                   source->CountDrop("journal",
                                     reason == QueueDrop::kFull ? "queue_full" : "write_failed");
                 }}));
    return absl::OkStatus();
  }

  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    if (queue_ != nullptr) queue_->Push({.report = std::move(report), .event = nullptr});
  }

  void OnEvent(const Event& event) override {
    if (queue_ == nullptr) return;
    queue_->Push({.report = nullptr, .event = std::make_shared<const Event>(event)});
  }

  void Stop(std::chrono::milliseconds deadline) override {
    if (queue_ == nullptr || std::exchange(stopped_, true)) return;
    if (!queue_->Stop(deadline)) {
      Log(Severity::kError, "the journal's disk did not answer in time; its thread is left behind");
    }
    if (const int64_t lost = queue_->dropped(); lost > 0) {
      Log(Severity::kError, StrCat(lost, " lines are missing from the journal"));
    }
  }

 private:
  const WriteFunction write_;
  std::unique_ptr<ReportQueue<Line>> queue_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Exporter> MakeJournalWriter(WriteFunction write) {
  return std::make_unique<JournalWriter>(std::move(write));
}

}  // namespace ptqwatch::internal
