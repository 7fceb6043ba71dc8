#include "ptqwatch/grpc_exporter.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "base/inert_exporter.h"
#include "base/mutex.h"
#include "base/report_queue.h"
#include "base/status_macros.h"
#include "ptqwatch/grpc_hub.h"
#include "run_exporter.h"

namespace ptqwatch {
namespace {

using internal::Mutex;
using internal::MutexLock;
using internal::RunExporter;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ReportPointer = std::shared_ptr<const AnalyzedReport>;

// Reports and events waiting to be serialised: about 0.5 s of work.
constexpr size_t kMaxWaiting = 256;

// A hub with one run, and a queue between the monitor and its exporter.
class GrpcExporterImpl final : public GrpcExporter {
 public:
  GrpcExporterImpl(std::unique_ptr<GrpcHub> hub, std::unique_ptr<RunExporter> run)
      : hub_(std::move(hub)), run_(std::move(run)) {}
  ~GrpcExporterImpl() override { Stop(std::chrono::seconds(2)); }

  std::string_view name() const override { return "grpc"; }
  const std::string& address() const override { return hub_->address(); }

  absl::Status Start(StatusSource* source, Control* control) override {
    MutexLock lock(mutex_);
    if (state_ != State::kBound) {
      return absl::FailedPreconditionError("the grpc exporter was started before");
    }
    PTQWATCH_RETURN_IF_ERROR(run_->Start(source, control));
    const auto handle = [run = run_](const Item& item) {
      if (const auto* report = std::get_if<ReportPointer>(&item)) {
        run->OnReport(*report);
      } else {
        run->OnEvent(std::get<Event>(item));
      }
      return true;
    };
    const auto dropped = [source](internal::QueueDrop reason) {
      source->CountDrop("grpc", reason == internal::QueueDrop::kFull ? "queue_full" : "stopped");
    };
    auto queue = Queue::Start({.thread_name = "ptqw-grpc",
                               .capacity = kMaxWaiting,
                               .handle = handle,
                               .dropped = dropped});
    if (!queue.ok()) {
      run_->Stop(milliseconds(0));
      return queue.status();
    }
    queue_ = *std::move(queue);
    state_ = State::kServing;
    return absl::OkStatus();
  }

  void OnReport(ReportPointer report) override {
    MutexLock lock(mutex_);
    if (state_ != State::kServing) return;
    run_->Announce(report->report.sequence);
    queue_->Push(std::move(report));
  }

  void OnEvent(const Event& event) override {
    MutexLock lock(mutex_);
    if (state_ == State::kServing) queue_->Push(event);
  }

  void Stop(milliseconds deadline) override {
    const auto end = steady_clock::now() + deadline;
    // The rest of the time is for cancelling the calls of clients that do not read.
    const milliseconds for_reading = std::min<milliseconds>(deadline / 4, milliseconds(500));
    {
      MutexLock lock(mutex_);
      if (state_ == State::kStopped) return;
      state_ = State::kStopped;
    }
    run_->Refuse();
    // It serialises what is queued, and at most one report more than there is time for.
    if (queue_ != nullptr) queue_->Stop(deadline - for_reading);
    const auto left = [end] {
      return std::max(std::chrono::duration_cast<milliseconds>(end - steady_clock::now()),
                      milliseconds(0));
    };
    run_->Stop(std::max(left() - for_reading, milliseconds(0)));
    hub_->Stop(left());
  }

 private:
  using Item = std::variant<ReportPointer, Event>;
  using Queue = internal::ReportQueue<Item>;
  enum class State { kBound, kServing, kStopped };

  const std::unique_ptr<GrpcHub> hub_;
  const std::shared_ptr<RunExporter> run_;
  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kBound;
  std::unique_ptr<Queue> queue_;  // set once, before the state is kServing
};

absl::StatusOr<std::unique_ptr<GrpcExporter>> Make(const GrpcOptions& options) {
  if (options.address.empty()) {
    return absl::InvalidArgumentError("grpc address '' is not HOST:PORT");
  }
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<GrpcHub> hub, GrpcHub::Create(options));
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<Exporter> run, hub->AddRun(""));
  // AddRun makes nothing else.
  std::unique_ptr<RunExporter> exporter(static_cast<RunExporter*>(run.release()));
  return std::make_unique<GrpcExporterImpl>(std::move(hub), std::move(exporter));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcExporter>> GrpcExporter::Create(GrpcOptions options) {
  absl::StatusOr<std::unique_ptr<GrpcExporter>> exporter = Make(options);
  if (exporter.ok() || !internal::BecomesInert(options.on_failure, exporter.status())) {
    return exporter;
  }
  return std::make_unique<internal::InertExporter<GrpcExporter>>("grpc", exporter.status());
}

}  // namespace ptqwatch
