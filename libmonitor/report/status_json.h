#ifndef PTQWATCH_REPORT_STATUS_JSON_H_
#define PTQWATCH_REPORT_STATUS_JSON_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// Reads a line written by StatusJson of this or another version. InvalidArgument for any other
/// text.
absl::StatusOr<RunStatus> StatusFromJson(std::string_view json);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_STATUS_JSON_H_
