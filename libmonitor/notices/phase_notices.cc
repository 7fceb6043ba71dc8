#include "notices/phase_notices.h"

#include <optional>

#include "base/strings.h"

namespace ptqwatch::internal {

void PhaseNotices::Poll(const Announce& announce) {
  while (announced_ < kMost) {
    const auto change = changes_->Next();
    if (!change) return;
    AnnounceChange(*change, announce);
  }
}

void PhaseNotices::BeforeReport(const Announce& announce) {
  Poll(announce);
  std::optional<PhaseChanges::Change> last;
  while (const auto change = changes_->Next()) last = change;
  if (last) AnnounceChange(*last, announce);
  announced_ = 0;
}

void PhaseNotices::AnnounceChange(const PhaseChanges::Change& change, const Announce& announce) {
  if (change.phase == phase_) return;
  ++announced_;
  announce(change.step,
           StrCat("learning-rate phase ", ToString(phase_), " -> ", ToString(change.phase)));
  phase_ = change.phase;
}

}  // namespace ptqwatch::internal
