#ifndef PTQWATCH_SNAPSHOT_PARAMETER_DIGEST_H_
#define PTQWATCH_SNAPSHOT_PARAMETER_DIGEST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// Digest of the bits of all loaded parameters, without buffers, and, in `each` if it is not null,
/// one of every parameter. Reads each parameter once, at about the speed of a copy; parameters on a
/// GPU are copied to the host in pieces. Returns Cancelled if the context is.
absl::StatusOr<std::string> DigestOfParameters(const Replica& replica,
                                               const ExecutionContext& context,
                                               std::vector<ParameterDigest>* each = nullptr);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_PARAMETER_DIGEST_H_
