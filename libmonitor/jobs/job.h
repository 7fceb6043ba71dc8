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

/// How a job reports to its caller, on the monitor thread.
struct JobCallbacks {
  /// Announces an event at the snapshot of `step`.
  std::function<void(Event::Kind, Severity, int64_t step, std::string message)> announce;
  /// Gives the caller a chance to do other work. Called between short pieces of work.
  std::function<void()> poll;
};

/// A snapshot whose report is published, and which is loaded in the session's replica.
struct JobInput {
  const SnapshotPlace& place;
  /// The probes' results. A job may move the quantized weights out, to free their memory early.
  absl::Span<ProbeResult> results;
  const JobCallbacks& callbacks;
};

/// The work that a job has to do.
struct JobStatus {
  enum class Work {
    kNone,      ///< no work until the next snapshot
    kNow,       ///< on the loaded snapshot; later snapshots and Finish wait for it
    kWhenSpare  ///< if a core is spare, between snapshots
  };
  Work work = Work::kNone;
  /// Whether Begin uses the quantized weights of the next snapshot; they are then kept for it.
  bool wants_quantized_weights = false;
};

/// Work between snapshots, done in pieces, on the opened subject it was made for. Not thread-safe.
class Job {
 public:
  virtual ~Job() = default;

  /// The probes whose results Begin uses.
  virtual std::vector<std::string_view> uses() const { return {}; }
  /// Lines for Monitor::Describe.
  virtual std::string Describe() const { return {}; }

  /// Called after each report: starts work that is requested or due, or takes the data it needs.
  virtual void Begin(const JobInput& input, const ExecutionContext& context) = 0;
  /// Works until `stop` returns true or the work has ended, which it announces. Call it only while
  /// Status has work.
  virtual void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
                       const ExecutionContext& context) = 0;
  virtual JobStatus Status() const = 0;

  /// Called if no core is spare for its work, repeatedly, until Advance is called.
  virtual void WaitForCore(const JobCallbacks& /*callbacks*/) {}
  /// Training has ended: the next call of Begin has the last snapshot.
  virtual void EndTraining() {}
  /// Gives up the current work for this reason.
  virtual void Abandon(const std::string& reason) = 0;
  /// Abandons the current work and refuses all later requests.
  virtual void Close(const std::string& reason) { Abandon(reason); }

  /// The newest result, for later reports.
  virtual ResultValue Result() const { return {}; }
  /// Takes over the result in the newest report of the resumed run.
  virtual void Resume(const Report& /*newest*/) {}
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_JOB_H_
