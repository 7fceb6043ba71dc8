#ifndef PTQWATCH_HANDOVER_PAGE_H_
#define PTQWATCH_HANDOVER_PAGE_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "handover/lr_tracker.h"
#include "handover/shared_server.h"
#include "handover/shared_text.h"
#include "handover/slot_page.h"
#include "handover/trainer_board.h"
#include "handover/trainer_switches.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Everything that the two halves of a monitor share, apart from the tensors: the trainer's half,
/// which runs inside OnStep, and the measuring half. It lies on the heap if a thread of the trainer
/// measures, and in shared memory if another process does. There are only plain data and atomics,
/// each with one half that writes it, so neither half ever waits for the other, and a process that
/// dies leaves nothing behind that the other would wait for.
struct Page {
  static constexpr uint64_t kVersion = 0x70747177'00000006;

  Page(int64_t every, int stretch) : switches(every, stretch) {}

  const uint64_t version = kVersion;
  TrainerSwitches switches;  ///< the measuring half's
  TrainerBoard board;        ///< the trainer's half's
  SlotPage slot;

  /// The learning rate's state that an earlier attempt left. The measuring half writes it once,
  /// before `past_known`.
  LrTracker past;
  std::atomic<bool> past_known{false};

  /// Snapshots of the last step. If the halves are two processes, the measuring half asks for them
  /// while the trainer is inside finish().
  struct LastStep {
    std::atomic<int64_t> asked{0};
    std::atomic<int64_t> answered{0};  ///< stored after the result
    std::atomic<SnapshotResult> result{SnapshotResult::kFailed};
  } last_step;

  /// On the page of a rank of a sharded model: the process of the rank that measures it (pid),
  /// which stays the same. A rank that has outlived its launch is none of the next one.
  std::atomic<pid_t> first_rank{0};

  /// Where the manifest of the shared memory lies in it.
  int64_t manifest_offset = 0;
  int64_t manifest_bytes = 0;

  /// The trainer's process asks; only the newest request counts.
  struct Requests {
    std::atomic<int64_t> finish{0};  ///< number of the request; stored after its timeout
    std::atomic<int64_t> finish_ms{0};
    std::atomic<int64_t> cancel{0};    ///< number of the request to finish that is cancelled
    std::atomic<int64_t> idle{0};      ///< open scopes of Monitor::Idle
    std::atomic<int64_t> stop_ms{-1};  ///< not negative: stop within this time
  } requests;
  /// The measuring process answers.
  struct Answers {
    std::atomic<pid_t> ready{0};  ///< the process that measures; stored after `failure`
    /// Number of the request, on the page of a rank that only copies the number of finishes so far;
    /// stored after the others.
    std::atomic<int64_t> finished{0};
    /// For such a rank: the last step then, and the first of the newest finishes that had it.
    std::atomic<int64_t> finished_step{SlotPage::kNoStep};
    std::atomic<int64_t> finished_first{0};
    std::atomic<absl::StatusCode> code{absl::StatusCode::kOk};
    std::atomic<int64_t> sequence{0};  ///< of the newest report then; 0: none
    SharedText failure{};              ///< why nothing is measured; empty: it is
    SharedText reason{};
  } answers;

  /// Alarms that the measuring process has sent to the trainer.
  std::atomic<int64_t> alarms{0};
  SharedServer server;  ///< written by the trainer's process, which keeps the server
  std::atomic<uint64_t> server_announced{0};  ///< version of its news that was announced last
};
static_assert(std::is_trivially_destructible_v<Page>);

/// Whether there is a finish, of those of one step from `first` to `newest`, that comes after
/// `taken`, which then becomes that one: each call of finish() has a finish of its own.
inline bool TakeFinish(int64_t first, int64_t newest, int64_t& taken) {
  const int64_t next = std::max(taken + 1, first);
  if (next > newest) return false;
  taken = next;
  return true;
}
static_assert(std::is_trivially_copyable_v<LrTracker>);
static_assert(std::atomic<double>::is_always_lock_free);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_PAGE_H_
