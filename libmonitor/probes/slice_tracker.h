#ifndef PTQWATCH_PROBES_SLICE_TRACKER_H_
#define PTQWATCH_PROBES_SLICE_TRACKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// A slice request that was accepted.
struct AcceptedSlice {
  int64_t number = 0;
  MakeSlice request = {};
  /// Snapshots taken when it was accepted: the slice is made of later ones.
  int64_t snapshots_taken = 0;
};

/// Accepts or refuses slice requests, one slice at a time, and keeps the status of the newest.
/// Thread-safe. Accept may be called by anyone, the other writers are the monitor thread's; OnStep
/// never takes this lock.
class SliceTracker {
 public:
  struct Quantizer {
    QuantizationMethod method = QuantizationMethod::kRtn;
    int bits = 0;
  };

  /// From now on requests for these quantizers are accepted. Before that, none are.
  void Open(std::vector<Quantizer> quantizers);
  /// From now on every request is refused with `reason`; a slice under way has failed with it.
  void Close(std::string reason);

  /// Returns the slice's number. InvalidArgument if the run does not have the quantizer (the
  /// message lists those it has) or `points` is out of range. FailedPrecondition while another
  /// slice is under way and where no slice can be made.
  absl::StatusOr<int64_t> Accept(const MakeSlice& request);

  SliceStatus status() const;

  /// Progress of the slice under way. No effect if there is none.
  void KeptFirst();
  void Progress(int64_t points_done, int64_t points_all);
  void Done(std::string path);
  void Fail(std::string error);

 private:
  mutable Mutex mutex_;
  std::string closed_ ABSL_GUARDED_BY(mutex_) = "this monitor makes no slices";
  std::vector<Quantizer> quantizers_ ABSL_GUARDED_BY(mutex_);
  SliceStatus status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_SLICE_TRACKER_H_
