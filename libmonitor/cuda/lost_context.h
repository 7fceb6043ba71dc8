#ifndef PTQWATCH_CUDA_LOST_CONTEXT_H_
#define PTQWATCH_CUDA_LOST_CONTEXT_H_

#include <string_view>

#include "absl/status/status.h"

namespace ptqwatch::internal {

/// Returns Unavailable: the device's context is lost for the whole process (an illegal address, a
/// failed launch, an uncorrectable memory error). Every later call on the device fails.
absl::Status LostContextError(std::string_view message);

/// Returns whether `status`, or the status from which it was made with its payloads, is a
/// LostContextError. After any other error the device remains usable.
bool IsLostContext(const absl::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LOST_CONTEXT_H_
