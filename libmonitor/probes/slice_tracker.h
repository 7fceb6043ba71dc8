#ifndef PTQWATCH_PROBES_SLICE_TRACKER_H_
#define PTQWATCH_PROBES_SLICE_TRACKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "probes/work_tracker.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// A slice request that was accepted.
struct AcceptedSlice {
  int64_t number = 0;
  MakeSlice request = {};
  /// Snapshots taken when it was accepted: the slice is made of later ones.
  int64_t snapshots_taken = 0;
};

/// Accepts or refuses slices. Accept may be called by anyone, the other writers are the monitor
/// thread's.
class SliceTracker : public WorkTracker<SliceStatus> {
 public:
  struct Quantizer {
    QuantizationMethod method = QuantizationMethod::kRtn;
    int bits = 0;
  };

  SliceTracker() : WorkTracker("this monitor makes no slices") {}

  /// From now on requests for these quantizers are accepted. Before that, none are.
  void Open(std::vector<Quantizer> quantizers);

  /// Returns the slice's number. InvalidArgument if the run does not have the quantizer (the
  /// message lists those it has) or `points` is out of range. FailedPrecondition while another
  /// slice is under way, and if no slice can be made.
  absl::StatusOr<int64_t> Accept(const MakeSlice& request);

  /// Progress of the slice under way. No effect if there is none.
  void KeptFirst();
  void Progress(int64_t points_done, int64_t points_all);
  void Done(std::string path);

 private:
  std::vector<Quantizer> quantizers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_SLICE_TRACKER_H_
