#ifndef PTQWATCH_CUDA_LOST_CONTEXT_H_
#define PTQWATCH_CUDA_LOST_CONTEXT_H_

#include <string_view>

#include "absl/status/status.h"

namespace ptqwatch::internal {

/// Unavailable: the device's context is lost (an illegal address, a failed launch, an uncorrectable
/// memory error), for everybody in this process. Every later call on the device fails.
absl::Status LostContextError(std::string_view message);

/// Whether `status`, or the status it was made from with its payloads, is a LostContextError. After
/// any other error the device can be used on.
bool IsLostContext(const absl::Status& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CUDA_LOST_CONTEXT_H_
