#include "base/passive_waits.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace ptqwatch::internal {

void WaitPassively(char** argv) {
  constexpr char kPolicy[] = "OMP_WAIT_POLICY";
  if (getenv(kPolicy) != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || setenv(kPolicy, "passive", /*overwrite=*/1) != 0) return;
  execv(program.c_str(), argv);  // goes on as it is if that fails
}

}  // namespace ptqwatch::internal
