// With PTQWATCH_TEST_INSTRUCTION_SET=avx2 in the environment, a test program's kernels use no newer
// instruction set.
#include <cstdlib>
#include <string_view>

#include "hwy/targets.h"

namespace {

[[maybe_unused]] const bool held = [] {
  const char* const newest = std::getenv("PTQWATCH_TEST_INSTRUCTION_SET");
  if (newest == nullptr || std::string_view(newest) != "avx2") return false;
  hwy::DisableTargets(HWY_AVX2 - 1);  // a better target has a lower bit
  return true;
}();

}  // namespace
