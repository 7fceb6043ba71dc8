#include "report/status_json.h"

#include "base/guard.h"
#include "base/status_macros.h"
#include "report/json_fields.h"
#include "report/status_fields.h"

namespace ptqwatch {
namespace internal {

absl::StatusOr<RunStatus> StatusFromJson(std::string_view json) {
  constexpr std::string_view kWhat = "status JSON";
  return Guard(kWhat, absl::StatusCode::kInvalidArgument, [&]() -> absl::StatusOr<RunStatus> {
    PTQWATCH_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(kWhat, json));
    return ReadRecord<RunStatus>(kWhat, parsed);
  });
}

}  // namespace internal

std::string StatusJson(const RunStatus& status) {
  return internal::JsonText(*internal::JsonWriter::Write(status));
}

}  // namespace ptqwatch
