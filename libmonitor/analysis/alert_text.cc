#include "analysis/alert_text.h"

#include "base/strings.h"

namespace ptqwatch::internal {

std::string AlertText(VerdictState before, const Verdict& verdict) {
  const std::string text = StrCat(ToString(verdict.state), ": ", verdict.summary);
  if (IsAlarm(verdict.state)) return verdict.state == before ? "" : text;
  return IsAlarm(before) ? StrCat("no longer ", ToString(before), " but ", text) : "";
}

}  // namespace ptqwatch::internal
