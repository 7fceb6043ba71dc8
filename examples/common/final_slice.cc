#include "final_slice.h"

#include "absl/strings/str_cat.h"
#include "monitor_setup.h"
#include "ptqwatch/report.h"

namespace ptqwatch::examples {

absl::StatusOr<FinalSlice> FinalSlice::Plan(const TrainerFlags& flags, int64_t steps) {
  FinalSlice slice;
  if (flags.slice.empty()) return slice;
  std::string known;
  for (const QuantizerSpec& spec : MakeMonitorOptions(flags, steps).quantizers) {
    const std::string method(ToString(spec.method));
    const std::string name = ShortName(method, spec.bits);
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
    // The last step has a snapshot whether or not one is due; the one before may be any, for a busy
    // monitor skips some.
    if (name == flags.slice) {
      slice.request_ = SliceRequest{.method = method, .bits = spec.bits, .at_step = steps};
    }
  }
  if (!slice.request_) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", flags.slice, "' is no quantizer of this run, which has ", known));
  }
  const int64_t every = flags.EveryOr(steps);
  if (every >= steps) {
    return absl::InvalidArgumentError(absl::StrCat("a run of ", steps, " steps with --every ",
                                                   every, " has one snapshot; it takes two"));
  }
  return slice;
}

absl::Status FinalSlice::Request(Monitor& monitor) const {
  if (!request_) return absl::OkStatus();
  return monitor.control().RequestSlice(*request_).status();
}

absl::StatusOr<std::string> FinalSlice::Path(const Monitor& monitor) const {
  if (!request_) return std::string();
  const SliceStatus status = monitor.status().slice;
  switch (status.state) {
    case SliceState::kDone:
      return status.path;
    case SliceState::kFailed:
      return absl::AbortedError(status.error);
    default:
      return absl::UnavailableError(absl::StrCat("the run ended before it was made (",
                                                 std::string(ToString(status.state)), ")"));
  }
}

}  // namespace ptqwatch::examples
