#ifndef PTQWATCH_MONITOR_PHASE_NOTICES_H_
#define PTQWATCH_MONITOR_PHASE_NOTICES_H_

#include <functional>
#include <string>
#include <utility>

#include "ptqwatch/step_info.h"
#include "trainer/phase_changes.h"

namespace ptqwatch::internal {

/// Announces changes of the learning-rate phase when they come. A rate that changes its phase over
/// and over fills no journal: after `kMost` notices the next ones come with a report, as one. The
/// monitor thread's.
class PhaseNotices {
 public:
  static constexpr int kMost = 8;
  using Announce = std::function<void(int64_t step, std::string message)>;

  /// `phase` is the one that was announced last, by an earlier attempt. `changes` must outlive
  /// this.
  PhaseNotices(PhaseChanges* changes, LrPhase phase) : changes_(changes), phase_(phase) {}

  /// Announces what is new.
  void Poll(const Announce& announce);
  /// Before a report: announces what was held back, and allows as many notices as at the beginning.
  void BeforeReport(const Announce& announce);

 private:
  void AnnounceChange(const PhaseChanges::Change& change, const Announce& announce);

  PhaseChanges* const changes_;
  LrPhase phase_;
  int announced_ = 0;  // since the last report
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_PHASE_NOTICES_H_
