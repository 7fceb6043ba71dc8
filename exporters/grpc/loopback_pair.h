#ifndef PTQWATCH_GRPC_LOOPBACK_PAIR_H_
#define PTQWATCH_GRPC_LOOPBACK_PAIR_H_

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// The descriptors of the two ends of a TCP connection, the owner's to close; non-blocking.
struct LoopbackPair {
  int client = -1;
  int server = -1;
};

/// A connection of this process with itself: nobody else is at either end. (socketpair() would do,
/// if gRPC took connections without addresses.) The status of errno on failure.
absl::StatusOr<LoopbackPair> MakeLoopbackPair();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_LOOPBACK_PAIR_H_
