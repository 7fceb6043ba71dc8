#include "monitor/state_keeper.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "probes/probe_state_file.h"
#include "snapshot/device_runtime.h"

namespace ptqwatch::internal {
namespace {

constexpr double kSecondsApart = 60;
constexpr std::chrono::seconds kLastWrite{10};
// Elements that are copied from a device between two checkpoints.
constexpr int64_t kCopiedPiece = 1 << 22;

int64_t BytesOf(const ProbeState& state) {
  size_t bytes = 0;
  for (const auto& [name, vector] : state.vectors) {
    if (vector.defined()) bytes += vector.elements.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

// The state in host memory, copied on the calling thread's current stream. Vectors never change, so
// those on the CPU are shared.
absl::StatusOr<ProbeState> OnHost(const ProbeState& state, const ExecutionContext& context) {
  return Guard([&]() -> absl::StatusOr<ProbeState> {
    at::NoGradGuard no_grad;
    ProbeState host = state;
    for (auto& [name, vector] : host.vectors) {
      if (!vector.defined() || vector.elements.is_cpu()) continue;
      const at::Tensor from = vector.elements;
      vector.elements = at::empty(from.sizes(), from.options().device(at::kCPU));
      for (int64_t begin = 0; begin < from.numel(); begin += kCopiedPiece) {
        PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
        const int64_t count = std::min(kCopiedPiece, from.numel() - begin);
        CopyAcross(vector.elements.narrow(0, begin, count), from.narrow(0, begin, count));
      }
    }
    return host;
  });
}

}  // namespace

// A state that waits or is being written. It holds its own memory reservation, because the monitor
// meanwhile continues with the next state.
struct StateKeeper::Kept {
  explicit Kept(std::shared_ptr<ByteBudget> bytes) : reservation(std::move(bytes)) {}
  ProbeState state;  // on the host
  Reservation reservation;
};

// Shared with the thread, which may be left behind if the disk hangs.
struct StateKeeper::Writer {
  Options options;
  RateLimitedLog failed;

  explicit Writer(Options options_in) : options(std::move(options_in)) {}
  void Write(const ProbeState& state) {
    Note(ProbeStateFile::Write(options.run_dir, options.run_id, options.fingerprint, state));
  }
  void Note(const absl::Status& status) {
    if (status.ok() || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) return;
    // Logs before it counts, so that the log has the reason by the time the count is seen.
    failed(Severity::kWarning, StrCat("the state of the probes was not kept: ", status));
    options.board->OnStateWriteFailure();
  }
};

StateKeeper::StateKeeper(Options options)
    : writer_(std::make_shared<Writer>(std::move(options))),
      bytes_(writer_->options.bytes),
      clock_(writer_->options.clock) {}

void StateKeeper::Offer(const ProbeState& state, bool now, const ExecutionContext& context) {
  if (writer_->options.run_dir.empty()) return;
  newest_ = state;  // shares the vectors
  unwritten_ = true;
  const double seconds = InSeconds(clock_->Monotonic());
  if (!now && seconds < next_write_) return;
  next_write_ = seconds + kSecondsApart;
  Push(context);
}

// If memory, a thread or time is lacking, retries with the next report or at the end.
void StateKeeper::Push(const ExecutionContext& context) {
  if (queue_ == nullptr) {
    auto queue = ReportQueue<std::shared_ptr<const Kept>>::Start(
        {.thread_name = "ptqw-state",
         .capacity = 2,  // the state being written, and the newest
         .handle =
             [writer = writer_](const std::shared_ptr<const Kept>& kept) {
               writer->Write(kept->state);
               return true;
             },
         .dropped = [](QueueDrop) {}});
    if (!queue.ok()) return;
    queue_ = *std::move(queue);
  }
  auto kept = std::make_shared<Kept>(bytes_);
  if (!kept->reservation.Take(BytesOf(newest_), "a probe state on its way to the disk").ok())
    return;
  absl::StatusOr<ProbeState> host = OnHost(newest_, context);
  if (!host.ok()) return writer_->Note(host.status());
  kept->state = *std::move(host);
  queue_->Push(std::move(kept));
  unwritten_ = false;
}

void StateKeeper::End() {
  // Only once: if the disk hangs, the destructor must not wait for it again.
  if (std::exchange(ended_, true)) return;
  if (queue_ != nullptr && !queue_->Stop(kLastWrite)) return;
  if (std::exchange(unwritten_, false)) {
    const absl::StatusOr<ProbeState> host = OnHost(newest_, ExecutionContext());
    host.ok() ? writer_->Write(*host) : writer_->Note(host.status());
  }
  writer_->options.lock.reset();
}

}  // namespace ptqwatch::internal
