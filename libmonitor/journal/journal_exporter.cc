#include "journal/journal_exporter.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/strings.h"
#include "base/worker.h"
#include "journal/journal_exporter_internal.h"
#include "journal/journal_file.h"
#include "journal/run_directory.h"

namespace ptqwatch::internal {
namespace {

using ReportPointer = std::shared_ptr<const AnalyzedReport>;

// What exporter and writer thread share. The thread owns it too: where a disk hangs beyond the
// deadline of Stop, the thread is left behind with it.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<ReportPointer> queue;  // oldest first; a report leaves it once it is in the file
  bool writing = false;             // the front of the queue is being written
  bool news = false;                // a report came since the writer last looked
  bool stopping = false;
  bool ended = false;
  int64_t lost = 0;                // reports that will not be in the file
  StatusSource* source = nullptr;  // null once Stop has returned

  std::unique_ptr<JournalFile> file;  // the writer thread's own
  RateLimitedLog failed;
};

// Both with the mutex held.
void CountDrop(Shared& shared, std::string_view reason) {
  ++shared.lost;
  if (shared.source != nullptr) shared.source->CountDrop("journal", reason);
}
void GiveUpQueue(Shared& shared) {
  for (size_t i = 0; i < shared.queue.size(); ++i) CountDrop(shared, "write_failed");
  shared.queue.clear();
}

// Writes what is queued, in order, until one report fails; that one and those after it stay queued.
void WriteQueue(Shared& shared) {
  bool wrote = false;
  absl::Status status;
  while (status.ok()) {
    ReportPointer report;
    {
      std::lock_guard<std::mutex> lock(shared.mutex);
      if (shared.queue.empty()) break;
      report = shared.queue.front();
      shared.writing = true;
    }
    try {
      status = shared.file->Append(ToJson(*report));
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
    std::lock_guard<std::mutex> lock(shared.mutex);
    shared.writing = false;
    // A Stop that ran out of time has given it up, and the rest with it.
    if (shared.queue.empty()) break;
    if (status.ok()) {
      wrote = true;
      shared.queue.pop_front();
    }
  }
  if (wrote) {
    absl::Status synced = shared.file->Sync();
    if (status.ok()) status = std::move(synced);
  }
  if (!status.ok()) {
    shared.failed(Severity::kError, std::string(status.message()));
  }
}

void RunWriter(const std::shared_ptr<Shared>& shared) {
  pthread_setname_np(pthread_self(), "ptqw-journal");
  bool last = false;
  while (!last) {
    {
      std::unique_lock<std::mutex> lock(shared->mutex);
      shared->changed.wait(lock, [&] { return shared->news || shared->stopping; });
      shared->news = false;
      last = shared->stopping;
    }
    WriteQueue(*shared);
  }
  // Unlocks the run directory before Stop returns.
  shared->file.reset();
  std::lock_guard<std::mutex> lock(shared->mutex);
  GiveUpQueue(*shared);
  shared->ended = true;
  shared->changed.notify_all();
}

class JournalExporter final : public Exporter {
 public:
  explicit JournalExporter(WriteFunction write) : write_(std::move(write)) {}
  ~JournalExporter() override { Stop(std::chrono::seconds(2)); }

  std::string_view name() const override { return "journal"; }

  absl::Status Start(StatusSource* source, Control*) override {
    const std::string& run_dir = source->run().run_dir;
    if (run_dir.empty()) {
      return absl::FailedPreconditionError("the journal exporter needs MonitorOptions::run_dir");
    }
    if (shared_ != nullptr) {
      return absl::FailedPreconditionError("the journal exporter was started before");
    }
    auto file = JournalFile::Open(StrCat(run_dir, "/", kJournalFileName), write_);
    if (!file.ok()) return file.status();
    auto shared = std::make_shared<Shared>();
    shared->source = source;
    shared->file = *std::move(file);
    try {
      // A signal meant for the trainer must not land here, nor SIGXFSZ of a file size limit end the
      // process.
      BlockSignals block;
      thread_ = std::thread([shared] { RunWriter(shared); });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          StrCat("cannot start the journal's thread: ", error.what()));
    }
    shared_ = std::move(shared);
    return absl::OkStatus();
  }

  void OnReport(ReportPointer report) override {
    if (shared_ == nullptr) return;
    std::lock_guard<std::mutex> lock(shared_->mutex);
    if (shared_->stopping) return;
    if (shared_->queue.size() >= kJournalQueue) {
      // The newest matter most: a resumed run goes on from their sequence numbers. The one being
      // written stays, so that what is counted as dropped is not in the file.
      shared_->queue.erase(shared_->queue.begin() + (shared_->writing ? 1 : 0));
      CountDrop(*shared_, "queue_full");
    }
    shared_->queue.push_back(std::move(report));
    shared_->news = true;
    shared_->changed.notify_all();
  }

  void Stop(std::chrono::milliseconds deadline) override {
    if (!thread_.joinable()) return;
    bool ended = false;
    int64_t lost = 0;
    {
      std::unique_lock<std::mutex> lock(shared_->mutex);
      shared_->stopping = true;
      shared_->changed.notify_all();
      ended = shared_->changed.wait_for(lock, deadline, [&] { return shared_->ended; });
      GiveUpQueue(*shared_);
      shared_->source = nullptr;
      lost = shared_->lost;
    }
    if (ended) {
      thread_.join();
    } else {
      thread_.detach();
      Log(Severity::kError, "the journal's disk did not answer in time; its thread is left behind");
    }
    if (lost > 0) Log(Severity::kError, StrCat(lost, " reports are missing from the journal"));
  }

 private:
  const WriteFunction write_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Exporter> MakeJournalExporter(WriteFunction write) {
  return std::make_unique<JournalExporter>(std::move(write));
}

}  // namespace ptqwatch::internal

namespace ptqwatch {

std::unique_ptr<Exporter> MakeJournalExporter() { return internal::MakeJournalExporter(::write); }

}  // namespace ptqwatch
