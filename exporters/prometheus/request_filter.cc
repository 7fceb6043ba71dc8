#include "request_filter.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 10;

// What Route looks at, and what httplib needs to find the end of a request.
constexpr std::array<std::string_view, 11> kKnown = {
    "accept", "accept-encoding", "authorization", "connection", "content-length",   "expect",
    "host",   "if-none-match",   "last-event-id", "origin",     "transfer-encoding"};

bool IsKnown(const std::string& name) {
  return std::any_of(kKnown.begin(), kKnown.end(), [&](std::string_view known) {
    return absl::EqualsIgnoreCase(name, absl::string_view(known.data(), known.size()));
  });
}

}  // namespace

bool RequestFilter::Pass(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    if (part_ == Part::kLeftOut) {
      if (c == '\n') part_ = Part::kName;
      continue;
    }
    if (++line_ > kMaxLineBytes) return false;
    if (part_ == Part::kName && c != ':' && c != '\n') {
      name_ += c;
    } else if (part_ == Part::kName) {
      EndName(c, out);
    } else {
      out += c;
      if (c == '\n' && part_ != Part::kBody) part_ = Part::kName;
    }
    if (c == '\n') line_ = 0;
  }
  return true;
}

// A line without a colon is the empty one, after which the body begins, or httplib's to refuse.
void RequestFilter::EndName(char end, std::string& out) {
  if (end == '\n') {
    if (name_ == "\r") part_ = Part::kBody;
  } else {
    part_ = IsKnown(name_) ? Part::kValue : Part::kLeftOut;
  }
  if (part_ != Part::kLeftOut) {
    out += name_;
    out += end;
  } else {
    line_ = 0;
  }
  name_.clear();
}

}  // namespace ptqwatch::internal
