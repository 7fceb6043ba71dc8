#ifndef PTQWATCH_JOURNAL_CONTROL_MESSAGE_H_
#define PTQWATCH_JOURNAL_CONTROL_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/control.h"

namespace ptqwatch::internal {

/// A command on its way through the control socket of a run directory: one line of JSON.
struct ControlRequest {
  enum class Kind : int {
    kSnapshot = 0,
    kPause = 1,
    kResume = 2,
    kEvery = 3,
    kSlice = 4,
    kCooldown = 5,
    kCancelCooldown = 6
  };
  Kind kind = Kind::kSnapshot;
  int64_t every = 0;        ///< kEvery only
  SliceRequest slice = {};  ///< kSlice only
  int64_t decay_steps = 0;  ///< kCooldown only
};

/// What became of it: the number of a slice or cooldown, and 0 for the other commands.
using ControlResponse = absl::StatusOr<int64_t>;

/// Longest line of either.
inline constexpr size_t kMaxControlBytes = 4096;

/// Both without a newline.
std::string RequestToJson(const ControlRequest& request);
std::string ResponseToJson(const ControlResponse& response);

/// InvalidArgument for what RequestToJson does not write.
absl::StatusOr<ControlRequest> RequestFromJson(std::string_view line);
/// The response that was written; Internal for what ResponseToJson does not write.
ControlResponse ResponseFromJson(std::string_view line);

/// Carries `request` out.
ControlResponse Apply(const ControlRequest& request, Control& control);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_CONTROL_MESSAGE_H_
