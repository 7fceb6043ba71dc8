#include "jobs/jobs.h"

#include <algorithm>

#include "base/guard.h"
#include "base/strings.h"
#include "jobs/cooldown_job.h"
#include "jobs/slice_job.h"

namespace ptqwatch::internal {
namespace {

// Treats an exception as a failure of the job.
void GuardJob(Job& job, absl::FunctionRef<void()> act) {
  const absl::Status done = Guard([&] {
    act();
    return absl::OkStatus();
  });
  if (!done.ok()) job.Abandon(StrCat(done));
}

// Whether another rank does this job; requests are then refused.
template <typename Tracker>
bool MadeByOther(const JobParts& parts, Tracker& tracker) {
  const WorkShare& share = parts.suite.share();
  if (share.Owns(share.trace)) return false;
  tracker.Close(StrCat("rank ", share.trace, " makes it"));
  return true;
}

}  // namespace

std::vector<MakeJob> AllJobs() {
  return {
      [](const JobParts& parts) -> std::unique_ptr<Job> {
        if (MadeByOther(parts, parts.trackers.slice)) return nullptr;
        return std::make_unique<SliceJob>(
            parts.suite.session(),
            SliceJobOptions{.run_dir = parts.options.run_dir,
                            .quantization = QuantizationOptionsOf(parts.options),
                            .curvature = parts.options.curvature.enabled},
            parts.trackers.slice);
      },
      [](const JobParts& parts) -> std::unique_ptr<Job> {
        if (MadeByOther(parts, parts.trackers.cooldown)) return nullptr;
        return std::make_unique<CooldownJob>(parts.suite.session(), parts.options.cooldown,
                                             QuantizationOptionsOf(parts.options),
                                             parts.suite.curvature(), parts.trackers.cooldown);
      },
  };
}

Jobs::Jobs(const JobParts& parts, const std::vector<MakeJob>& list) {
  for (const MakeJob& make : list) {
    if (std::unique_ptr<Job> job = make(parts)) jobs_.push_back(std::move(job));
  }
}

bool Jobs::want_quantized_weights() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const auto& job) { return job->Status().wants_quantized_weights; });
}

bool Jobs::Has(JobStatus::Work work) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [work](const auto& job) { return job->Status().work == work; });
}

void Jobs::Work(JobStatus::Work work, absl::FunctionRef<void(Job&)> act) const {
  for (const std::unique_ptr<Job>& job : jobs_) {
    if (job->Status().work == work) GuardJob(*job, [&] { act(*job); });
  }
}

void Jobs::Begin(const JobInput& input, const ExecutionContext& context) {
  for (const std::unique_ptr<Job>& job : jobs_) {
    GuardJob(*job, [&] { job->Begin(input, context); });
  }
  Work(JobStatus::Work::kNow,
       [&](Job& job) { job.Advance([] { return false; }, input.callbacks, context); });
}

void Jobs::Advance(absl::FunctionRef<bool()> stop, const JobCallbacks& callbacks,
                   const ExecutionContext& context) {
  Work(JobStatus::Work::kWhenSpare, [&](Job& job) {
    if (!stop()) job.Advance(stop, callbacks, context);
  });
}

void Jobs::WaitForCore(const JobCallbacks& callbacks) {
  Work(JobStatus::Work::kWhenSpare, [&](Job& job) { job.WaitForCore(callbacks); });
}

void Jobs::EndTraining() {
  for (const std::unique_ptr<Job>& job : jobs_) job->EndTraining();
}

void Jobs::Resume(const Report& newest) {
  for (const std::unique_ptr<Job>& job : jobs_) job->Resume(newest);
}

void Jobs::ProbeSwitchedOff(std::string_view probe) {
  for (const std::unique_ptr<Job>& job : jobs_) {
    const std::vector<std::string_view> uses = job->uses();
    if (std::find(uses.begin(), uses.end(), probe) == uses.end()) continue;
    job->Close(StrCat("the ", probe, " probe is switched off"));
  }
}

std::string Jobs::Describe() const {
  std::string text;
  for (const std::unique_ptr<Job>& job : jobs_) text += job->Describe();
  return text;
}

std::vector<ResultValue> Jobs::Results() const {
  std::vector<ResultValue> results;
  for (const std::unique_ptr<Job>& job : jobs_) results.push_back(job->Result());
  return results;
}

}  // namespace ptqwatch::internal
