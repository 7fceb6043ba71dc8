#include "monitor/relay_monitor.h"

#include <optional>
#include <thread>

#include "base/stopwatch.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::milliseconds kLookForFinish{5};

}  // namespace

absl::Status RelayMonitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  const std::optional<int64_t> step = page_->board.step();
  if (!step) return absl::FailedPreconditionError("Finish before the first OnStep");
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!stopped_) {
    if (std::optional<absl::Status> finished = relay_.Finished(*step)) return *std::move(finished);
    if (cancel.cancelled()) return absl::CancelledError("Finish was cancelled");
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError("the first host did not finish in time");
    }
    std::this_thread::sleep_for(kLookForFinish);
  }
  return absl::FailedPreconditionError("Finish after Stop");
}

absl::Status RelayMonitor::Stop(std::chrono::milliseconds /*deadline*/) {
  stopped_ = true;
  relay_.End();
  return absl::OkStatus();
}

MonitorStatus RelayMonitor::status() const {
  MonitorStatus status;
  status.health = stopped_ ? Health::kStopped : Health::kOk;
  const Clock& clock = *Clock::Real();
  page_->board.AddTo(status, InSeconds(clock.Monotonic()), clock.UnixSeconds());
  return status;
}

}  // namespace ptqwatch::internal
