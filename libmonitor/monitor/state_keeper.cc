#include "monitor/state_keeper.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "base/reservation.h"
#include "base/strings.h"
#include "probes/probe_state_file.h"

namespace ptqwatch::internal {
namespace {

constexpr double kSecondsApart = 60;
constexpr std::chrono::seconds kLastWrite{10};

int64_t BytesOf(const ProbeState& state) {
  size_t bytes = 0;
  for (const auto& [name, vector] : state.vectors) {
    if (vector.defined()) bytes += vector.elements.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

// A state that waits or is being written. It holds its own memory reservation, because the monitor
// meanwhile continues with the next state.
struct StateKeeper::Kept {
  Kept(ProbeState state_in, std::shared_ptr<ByteBudget> bytes)
      : state(std::move(state_in)), reservation(std::move(bytes)) {}
  ProbeState state;
  Reservation reservation;
};

// Shared with the thread, which may be left behind if the disk hangs.
struct StateKeeper::Writer {
  Options options;
  RateLimitedLog failed;

  explicit Writer(Options options_in) : options(std::move(options_in)) {}
  void Write(const ProbeState& state) {
    const absl::Status status =
        ProbeStateFile::Write(options.run_dir, options.run_id, options.fingerprint, state);
    if (status.ok()) return;
    // Logs before it counts, so that the log has the reason by the time the count is seen.
    failed(Severity::kWarning, StrCat("the state of the probes was not kept: ", status));
    options.board->OnStateWriteFailure();
  }
};

StateKeeper::StateKeeper(Options options)
    : writer_(std::make_shared<Writer>(std::move(options))),
      bytes_(writer_->options.bytes),
      clock_(writer_->options.clock) {}

void StateKeeper::Offer(const ProbeState& state, bool now) {
  if (writer_->options.run_dir.empty()) return;
  newest_ = state;  // shares the vectors
  unwritten_ = true;
  const double seconds = std::chrono::duration<double>(clock_->Monotonic()).count();
  if (!now && seconds < next_write_) return;
  next_write_ = seconds + kSecondsApart;
  Push();
}

// If memory or a thread is lacking, retries with the next report or at the end.
void StateKeeper::Push() {
  if (queue_ == nullptr) {
    auto queue = ReportQueue<std::shared_ptr<const Kept>>::Start(
        {.thread_name = "ptqw-state",
         .capacity = 2,  // the state being written, and the newest
         .leave_behind = true,
         .handle =
             [writer = writer_](const std::shared_ptr<const Kept>& kept) {
               writer->Write(kept->state);
               return true;
             },
         .dropped = [](QueueDrop) {}});
    if (!queue.ok()) return;
    queue_ = *std::move(queue);
  }
  auto kept = std::make_shared<Kept>(newest_, bytes_);
  if (!kept->reservation.Take(BytesOf(newest_), "a probe state on its way to the disk").ok())
    return;
  queue_->Push(std::move(kept));
  unwritten_ = false;
}

void StateKeeper::End() {
  // Only once: if the disk hangs, the destructor must not wait for it again.
  if (std::exchange(ended_, true)) return;
  if (queue_ != nullptr && !queue_->Stop(kLastWrite)) return;
  if (std::exchange(unwritten_, false)) writer_->Write(newest_);
  writer_->options.lock.reset();
}

}  // namespace ptqwatch::internal
