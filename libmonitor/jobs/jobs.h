#ifndef PTQWATCH_JOBS_JOBS_H_
#define PTQWATCH_JOBS_JOBS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "jobs/job.h"
#include "probes/probe_suite.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "publish/job_tracker.h"

namespace ptqwatch::internal {

/// The arguments for making a job. All but the options must outlive it.
struct JobParts {
  ProbeSuite& suite;  ///< whose session must still have its live tensors
  const MonitorOptions& options;
  JobTrackers& trackers;
};
/// Returns null if another rank does the job.
using MakeJob = std::function<std::unique_ptr<Job>(const JobParts&)>;
/// All jobs.
std::vector<MakeJob> AllJobs();

/// Runs the jobs of a monitor. Not thread-safe.
class Jobs {
 public:
  explicit Jobs(const JobParts& parts, const std::vector<MakeJob>& list = AllJobs());

  /// Whether a job uses the quantized weights of the next snapshot.
  bool want_quantized_weights() const;
  /// Whether a job has work for a spare core.
  bool under_way() const { return Has(JobStatus::Work::kWhenSpare); }

  /// Passes a snapshot to the jobs, and does the work that needs it loaded.
  void Begin(const JobInput& input, const ExecutionContext& context);
  /// Does the work for a spare core until `stop` returns true or nothing is left.
  void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
               const ExecutionContext& context);
  /// As in Job.
  void WaitForCore(const JobCallbacks& callbacks);
  void EndTraining();
  void Resume(const Report& newest);
  /// Closes the jobs that use the results of this probe.
  void ProbeSwitchedOff(std::string_view probe);

  std::string Describe() const;
  /// The jobs' results for the next report.
  std::vector<ResultValue> Results() const;

 private:
  bool Has(JobStatus::Work work) const;
  // Calls `act` for each job with this kind of work.
  void Work(JobStatus::Work work, absl::FunctionRef<void(Job&)> act) const;

  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_JOBS_H_
