#include "probes/slice_tracker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

void SliceTracker::Open(std::vector<Quantizer> quantizers) {
  MutexLock lock(mutex_);
  quantizers_ = std::move(quantizers);
  closed_.clear();
}

absl::StatusOr<int64_t> SliceTracker::Accept(const MakeSlice& request) {
  MutexLock lock(mutex_);
  if (!closed_.empty()) return absl::FailedPreconditionError(StrCat("no slice: ", closed_));
  if (request.points < kMinSlicePoints || request.points > kMaxSlicePoints) {
    return absl::InvalidArgumentError(StrCat("points = ", request.points, ": must be from ",
                                             kMinSlicePoints, " to ", kMaxSlicePoints));
  }
  const bool known =
      std::any_of(quantizers_.begin(), quantizers_.end(), [&](const Quantizer& quantizer) {
        return quantizer.method == request.method && quantizer.bits == request.bits;
      });
  if (!known) {
    const std::string all =
        absl::StrJoin(quantizers_, ", ", [](std::string* out, const Quantizer& quantizer) {
          out->append(StrCat(ToString(quantizer.method), " ", quantizer.bits));
        });
    return absl::InvalidArgumentError(StrCat("method = '", ToString(request.method),
                                             "', bits = ", request.bits, ": this run has ", all));
  }
  if (status_.under_way()) {
    return absl::FailedPreconditionError(StrCat(
        "a slice through ", ShortName(ToString(status_.request.method), status_.request.bits),
        " is under way (", ToString(status_.state), "); ask again when it is done"));
  }
  return Begin({.state = SliceState::kWaitingForFirst, .request = request});
}

void SliceTracker::KeptFirst() {
  MutexLock lock(mutex_);
  if (status_.under_way()) status_.state = SliceState::kWaitingForSecond;
}

void SliceTracker::Progress(int64_t points_done, int64_t points_all) {
  MutexLock lock(mutex_);
  if (!status_.under_way()) return;
  status_.state = SliceState::kMeasuring;
  status_.points_done = points_done;
  status_.points_all = points_all;
}

void SliceTracker::Done(std::string path) {
  MutexLock lock(mutex_);
  if (status_.under_way()) End(SliceState::kDone).path = std::move(path);
}

}  // namespace ptqwatch::internal
