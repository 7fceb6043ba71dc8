#ifndef PTQWATCH_MONITOR_FOLLOWED_RUN_H_
#define PTQWATCH_MONITOR_FOLLOWED_RUN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "monitor/monitor_part.h"
#include "monitor/process_trainer.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {

/// A monitor that another process measures for. What it finds out is read from the run directory.
class FollowedRun : public MonitorPart {
 public:
  FollowedRun(std::unique_ptr<ProcessTrainer> trainer, std::string run_dir)
      : trainer_(std::move(trainer)),
        page_(trainer_->page()),
        run_dir_(std::move(run_dir)),
        run_(OpenRunDirectory(run_dir_)) {}

  void OnStep(const StepInfo& info) noexcept override {
    if (!stopped()) trainer_->OnStep(info);
  }
  /// As of the run directory, at most a second old; without the server.
  MonitorStatus status() const override;
  /// Read from the run directory.
  std::shared_ptr<const AnalyzedReport> latest() const override;
  Control& control() override { return *run_; }

 protected:
  ProcessTrainer& trainer() { return *trainer_; }
  Page& page() const { return page_; }
  const std::string& run_dir() const { return run_dir_; }
  bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  /// False if it was stopped before.
  bool BeginStop() noexcept { return !stopped_.exchange(true); }
  /// Waits until the report of that number is in the journal, which has a thread of its own, for
  /// two seconds at most.
  void AwaitReport(int64_t sequence) const;

 private:
  const std::unique_ptr<ProcessTrainer> trainer_;
  Page& page_;
  const std::string run_dir_;
  const std::unique_ptr<RunSource> run_;
  std::atomic<bool> stopped_{false};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_FOLLOWED_RUN_H_
