#include "client/target.h"

#include <filesystem>
#include <system_error>

#include "base/status_macros.h"

namespace ptqwatch::internal {

absl::StatusOr<Target> ParseTarget(const std::string& text) {
  std::error_code error;
  if (text.find('/') != std::string::npos || std::filesystem::is_directory(text, error)) {
    Target target;
    target.run_dir = text;
    return target;
  }
  PTQWATCH_ASSIGN_OR_RETURN(HostPort address, ParseServerAddress(text, kDefaultGrpcPort));
  return Target(std::move(address));
}

}  // namespace ptqwatch::internal
