#ifndef PTQWATCH_MONITOR_SLICE_DESK_H_
#define PTQWATCH_MONITOR_SLICE_DESK_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Where slices are asked for, by anyone, and followed while the monitor thread makes them: one at
/// a time. Thread-safe; the trainer's thread never comes here by itself.
class SliceDesk {
 public:
  struct Quantizer {
    std::string method;
    int bits = 0;
  };

  /// From now on requests for these are taken; before it none are.
  void Open(std::vector<Quantizer> quantizers);
  /// From now on none are, and one that is under way has failed, for this reason.
  void Close(std::string reason);

  /// Takes a request, and returns its number. `snapshots_taken` so far: the slice is made of later
  /// ones. InvalidArgument for a quantizer that the run does not have, listing those it has,
  /// and for `points` out of range; FailedPrecondition while another is under way and where no
  /// slice can be made.
  absl::StatusOr<int64_t> Request(const SliceRequest& request, int64_t snapshots_taken);

  SliceStatus status() const;
  /// Monitor thread: whether the snapshot that is the `ordinal`-th that was taken, from 1, belongs
  /// to the slice that is under way.
  bool Wants(int64_t ordinal) const;

  /// Monitor thread: what has become of the slice that is under way; no effect where none is.
  void KeptFirst();
  void Progress(int64_t points_done, int64_t points_all);
  void Done(std::string path);
  void Fail(std::string error);

 private:
  mutable std::mutex mutex_;
  std::string closed_ = "this monitor makes no slices";
  std::vector<Quantizer> quantizers_;
  SliceStatus status_;
  int64_t taken_before_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SLICE_DESK_H_
