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
#include "jobs/job_tracker.h"
#include "probes/probe_suite.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// What a job is made from. All but the options must outlive it.
struct JobParts {
  ProbeSuite& suite;  ///< whose session still has its live tensors
  const MonitorOptions& options;
  JobTrackers& trackers;
};
using MakeJob = std::function<std::unique_ptr<Job>(const JobParts&)>;
/// The list of jobs.
std::vector<MakeJob> AllJobs();

/// Drives the jobs of a monitor. One thread at a time.
class Jobs {
 public:
  explicit Jobs(const JobParts& parts, const std::vector<MakeJob>& list = AllJobs());

  /// Whether a job uses the quantized weights of the next snapshot.
  bool want_quantized_weights() const;
  /// Whether a job would use a spare core.
  bool under_way() const { return Has(JobStatus::Work::kWhenSpare); }

  /// Shows the jobs a snapshot, and does the work that must be done while it is loaded.
  void Begin(const JobInput& input, const ExecutionContext& context);
  /// Does the work that a spare core is for, until `stop` or until nothing is left.
  void Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
               const ExecutionContext& context);
  /// As in Job.
  void WaitForCore(const JobCallbacks& callbacks);
  void EndTraining();
  void Resume(const Report& newest);
  /// Closes the jobs that use this probe.
  void ProbeSwitchedOff(std::string_view probe);

  std::string Describe() const;
  /// What the jobs have found, for the next report.
  std::vector<ResultValue> Results() const;

 private:
  bool Has(JobStatus::Work work) const;
  // Acts on the jobs that have such work.
  void Work(JobStatus::Work work, absl::FunctionRef<void(Job&)> act) const;

  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_JOBS_H_
