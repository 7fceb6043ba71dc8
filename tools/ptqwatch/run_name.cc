#include "run_name.h"

#include <filesystem>
#include <system_error>

namespace ptqwatch::internal {

std::string NameOfRun(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error).lexically_normal();
  const std::string last = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  return last.empty() ? path : last;
}

}  // namespace ptqwatch::internal
