#ifndef PTQWATCH_PROTO_CONVERSION_STATUS_RESPONSE_JSON_H_
#define PTQWATCH_PROTO_CONVERSION_STATUS_RESPONSE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Returns the status as one line of JSON with the field names of GetStatusResponse. Integers are
/// JSON numbers, as in a journal; unknown values are absent.
absl::StatusOr<std::string> StatusResponseJson(const RunStatus& status);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CONVERSION_STATUS_RESPONSE_JSON_H_
