#ifndef PTQWATCH_SNAPSHOT_PARAMETER_DIGEST_H_
#define PTQWATCH_SNAPSHOT_PARAMETER_DIGEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Digest of the bits of all loaded parameters, without buffers. Reads each parameter once;
/// parameters on a GPU are copied to the host in pieces. Returns Cancelled if the context is.
absl::StatusOr<std::string> DigestOfParameters(const Replica& replica,
                                               const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_PARAMETER_DIGEST_H_
