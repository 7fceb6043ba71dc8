#ifndef PTQWATCH_COMMON_FINAL_SLICE_H_
#define PTQWATCH_COMMON_FINAL_SLICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/control.h"
#include "ptqwatch/monitor.h"
#include "trainer_flags.h"

namespace ptqwatch::examples {

/// --slice: a slice of the loss surface through the last two snapshots of a run.
class FinalSlice {
 public:
  /// Of a run of `steps` steps. Without the flag nothing is asked for. InvalidArgument, listing the
  /// run's quantizers, where the flag names none of them, and where the run has only one snapshot.
  static absl::StatusOr<FinalSlice> Plan(const TrainerFlags& flags, int64_t steps);

  /// Before the first step.
  absl::Status Request(Monitor& monitor) const;
  /// After Finish: the file, or why there is none; empty without the flag.
  absl::StatusOr<std::string> Path(const Monitor& monitor) const;

 private:
  std::optional<SliceRequest> request_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_FINAL_SLICE_H_
