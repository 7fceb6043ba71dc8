#include "base/host_name.h"

#include <unistd.h>

#include <array>

namespace ptqwatch::internal {

std::string HostName() {
  std::array<char, 256> name{};  // Linux: at most 64 characters
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

bool IsOtherHost(std::string_view host) { return !host.empty() && host != HostName(); }

}  // namespace ptqwatch::internal
