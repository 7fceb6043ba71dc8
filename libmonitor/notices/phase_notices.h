#ifndef PTQWATCH_NOTICES_PHASE_NOTICES_H_
#define PTQWATCH_NOTICES_PHASE_NOTICES_H_

#include <functional>
#include <string>

#include "handover/phase_changes.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch::internal {

/// Announces changes of the learning-rate phase as they come. To bound the journal, after `kMost`
/// notices since the last report, later changes are merged into one notice with the next report.
/// For the monitor thread.
class PhaseNotices {
 public:
  static constexpr int kMost = 8;
  using Announce = std::function<void(int64_t step, std::string message)>;

  /// `phase` is the phase that an earlier attempt announced last. `changes` must outlive this.
  PhaseNotices(PhaseChanges* changes, LrPhase phase) : changes_(changes), phase_(phase) {}

  /// Announces new changes.
  void Poll(const Announce& announce);
  /// Before a report: announces the changes held back, and resets the limit.
  void BeforeReport(const Announce& announce);

 private:
  void AnnounceChange(const PhaseChanges::Change& change, const Announce& announce);

  PhaseChanges* const changes_;
  LrPhase phase_;
  int announced_ = 0;  // since the last report
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_NOTICES_PHASE_NOTICES_H_
