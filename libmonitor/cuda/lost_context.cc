#include "cuda/lost_context.h"

#include "absl/strings/cord.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr char kPayload[] = "ptqwatch/lost_context";

}  // namespace

absl::Status LostContextError(std::string_view message) {
  absl::Status status = absl::UnavailableError(StrCat(message));
  status.SetPayload(kPayload, absl::Cord("1"));
  return status;
}

bool IsLostContext(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace ptqwatch::internal
