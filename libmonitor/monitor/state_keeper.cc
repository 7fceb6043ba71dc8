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

// A state that waits or is being written. The monitor goes on to the next one meanwhile, so that
// its memory is held by this.
struct StateKeeper::Kept {
  Kept(ProbeState state_in, std::shared_ptr<ByteBudget> bytes)
      : state(std::move(state_in)), reservation(std::move(bytes)) {}
  ProbeState state;
  Reservation reservation;
};

// Owned by the thread, too, which may be left behind with a disk that hangs.
struct StateKeeper::Writer {
  Options options;
  RateLimitedLog failed;

  explicit Writer(Options options_in) : options(std::move(options_in)) {}
  void Write(const ProbeState& state) {
    const absl::Status status =
        ProbeStateFile::Write(options.run_dir, options.run_id, options.fingerprint, state);
    if (status.ok()) return;
    // Said before it is counted: who sees the count finds the reason in the log.
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

// Where there is no memory or no thread, the next report's turn comes, or the end.
void StateKeeper::Push() {
  if (queue_ == nullptr) {
    auto queue = ReportQueue<std::shared_ptr<const Kept>>::Start(
        {.thread_name = "ptqw-state",
         .capacity = 2,  // the one that is being written, and the newest
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
  // Once: where the disk hangs, whoever destroys this must not wait for it.
  if (std::exchange(ended_, true)) return;
  if (queue_ != nullptr && !queue_->Stop(kLastWrite)) return;
  if (std::exchange(unwritten_, false)) writer_->Write(newest_);
  writer_->options.lock.reset();
}

}  // namespace ptqwatch::internal
