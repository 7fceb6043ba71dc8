#ifndef PTQWATCH_OFFLINE_REPLAY_H_
#define PTQWATCH_OFFLINE_REPLAY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"
#include "ptqwatch/verdict_options.h"

namespace ptqwatch {

/// Recomputes the verdicts of a run as a monitor of this version would have. Reports of different
/// branches (Report::branch) are separate series. Not thread-safe.
class PTQWATCH_EXPORT Replay {
 public:
  /// REQUIRES: Validate(options).ok().
  explicit Replay(const VerdictOptions& options = {});
  Replay(Replay&&) noexcept;
  Replay& operator=(Replay&&) noexcept;
  ~Replay();

  /// The verdict on the next report; call in the order of the journal.
  Verdict Add(const Report& report);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ReplayedJournal {
  int64_t reports = 0;           ///< passed to the callback
  int64_t unreadable_lines = 0;  ///< truncated or damaged, and skipped
  ReplicaStatus replicas = {};   ///< of a run with several ranks
};

/// Passes each report of a journal to `each`, in order, with a recomputed verdict; events are
/// skipped. Ends early if `each` returns false.
///
/// `path` is a run directory, whose journal is read in all its parts, or whose ranks' journals are
/// merged; or a file of journal lines, or "-" for standard input. Journals of earlier versions are
/// accepted. Memory: one line, and the series behind the verdict.
///
/// Errors name `path`: the status of errno if it cannot be read, NotFound for a directory without a
/// journal, FailedPrecondition if it contains no report, InvalidArgument for invalid options.
PTQWATCH_EXPORT absl::StatusOr<ReplayedJournal> ReplayJournal(
    const std::string& path, const std::function<bool(const AnalyzedReport&)>& each,
    const VerdictOptions& options = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_REPLAY_H_
