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
#include "journal/journal_files.h"
#include "journal/report_line.h"

namespace ptqwatch::internal {
namespace {

// A report or an event. Reports are converted to JSON on the writing thread.
struct Line {
  std::shared_ptr<const AnalyzedReport> report;
  std::shared_ptr<const Event> event;
};

// Used only by the queue's thread.
struct Output {
  Output(std::string run_dir_in, JournalLimits limits_in, WriteFunction write_in)
      : run_dir(std::move(run_dir_in)), limits(limits_in), write(std::move(write_in)) {}

  const std::string run_dir;
  const JournalLimits limits;
  const WriteFunction write;
  std::unique_ptr<JournalFile> file;
  bool unsynced = false;
  RateLimitedLog failed;

  bool Write(const Line& line) {
    const absl::Status status = Guard([&] {
      return file->Append(line.report ? ReportLine(*line.report) : EventToJson(*line.event));
    });
    if (!status.ok()) failed(Severity::kError, Message(status));
    unsynced |= status.ok();
    if (status.ok() && file->size() >= limits.part_bytes) BeginPart();
    return status.ok();
  }

  void Sync() {
    if (!std::exchange(unsynced, false)) return;
    const absl::Status status = file->Sync();
    if (!status.ok()) failed(Severity::kError, Message(status));
  }

  // If this fails, the current part goes on growing.
  void BeginPart() {
    Sync();
    const absl::Status status = Guard([&]() -> absl::Status {
      PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<JournalFile> next,
                                file->BeginPart(run_dir, limits.older_parts, write));
      file = std::move(next);
      return absl::OkStatus();
    });
    if (!status.ok()) failed(Severity::kError, Message(status));
  }
};

class JournalWriter final : public Exporter {
 public:
  JournalWriter(WriteFunction write, JournalLimits limits)
      : write_(std::move(write)), limits_(limits) {}
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
    auto output = std::make_shared<Output>(run_dir, limits_, write_);
    PTQWATCH_ASSIGN_OR_RETURN(output->file,
                              JournalFile::Open(StrCat(run_dir, "/", kJournalFileName), write_));
    PTQWATCH_ASSIGN_OR_RETURN(
        queue_, ReportQueue<Line>::Start(
                    {.thread_name = "ptqw-journal",
                     .capacity = kJournalQueue,
                     .handle = [output](const Line& line) { return output->Write(line); },
                     .rest = [output] { output->Sync(); },
                     .dropped =
                         [source](QueueDrop reason) {
                           source->CountDrop("journal", reason == QueueDrop::kFull
                                                            ? "queue_full"
                                                            : "write_failed");
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
  const JournalLimits limits_;
  std::unique_ptr<ReportQueue<Line>> queue_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Exporter> MakeJournalWriter(WriteFunction write, JournalLimits limits) {
  return std::make_unique<JournalWriter>(std::move(write), limits);
}

}  // namespace ptqwatch::internal
