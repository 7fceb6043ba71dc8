#ifndef PTQWATCH_JOBS_JOB_H_
#define PTQWATCH_JOBS_JOB_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "probes/probe.h"
#include "probes/probe_result.h"
#include "ptqwatch/event.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/log.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// How a job speaks to its caller, on the monitor thread.
struct JobCallbacks {
  /// Says something about the snapshot of `step`.
  std::function<void(Event::Kind, Severity, int64_t step, std::string message)> announce;
  /// Lets the caller look at what else there is to do. Called between short pieces of work.
  std::function<void()> poll;
};

/// A snapshot whose report is out, and which is loaded in the session's replica.
struct JobInput {
  const SnapshotPlace& place;
  /// Of the probes. A job may move the quantized weights out, so that their memory is free as soon
  /// as it can be.
  absl::Span<ProbeResult> results;
  const JobCallbacks& callbacks;
};

/// What a job has to do.
struct JobStatus {
  enum class Work {
    kNone,      ///< until a snapshot
    kNow,       ///< with the snapshot that is loaded: later ones, and Finish, wait for it
    kWhenSpare  ///< where a core is spare, between any snapshots
  };
  Work work = Work::kNone;
  /// Whether Begin uses the quantized weights of the next snapshot, which are kept for it then.
  bool wants_quantized_weights = false;
};

/// Work between snapshots, in pieces. Works on the opened subject that it was made for. One thread
/// at a time.
class Job {
 public:
  virtual ~Job() = default;

  /// The probes whose results it begins with.
  virtual std::vector<std::string_view> uses() const { return {}; }
  /// Lines for Monitor::Describe.
  virtual std::string Describe() const { return {}; }

  /// After each report: begins where that is asked for or due, or takes what it needs.
  virtual void Begin(const JobInput& input, const ExecutionContext& context) = 0;
  /// Works until `stop` or until it has ended, which it announces. Only while Status has work.
  virtual void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
                       const ExecutionContext& context) = 0;
  virtual JobStatus Status() const = 0;

  /// No core is spare for its work; called again until Advance is.
  virtual void WaitForCore(const JobCallbacks& /*callbacks*/) {}
  /// Training has ended: no snapshot follows the one that Begin is given next.
  virtual void EndTraining() {}
  /// Gives up what is under way, for this reason.
  virtual void Abandon(const std::string& reason) = 0;
  /// Abandons, and refuses whatever is asked for from now on.
  virtual void Close(const std::string& reason) { Abandon(reason); }

  /// What the newest one found, for the reports from now on.
  virtual ResultValue Result() const { return {}; }
  /// Takes over the result that is in the newest report of the run that is resumed.
  virtual void Resume(const Report& /*newest*/) {}
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_JOB_H_
