#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ptqwatch {
namespace huge_pages_test {

// Whether the mapping that holds `address` is flagged for huge pages.
bool IsAdvised(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    if (std::istringstream range(line); range >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.rfind("VmFlags:", 0) == 0) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

TEST(HugePages, AreAskedForInLargeVectorsAlone) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP();
  std::vector<float> large;
  internal::ReserveHuge(int64_t{16} << 20, &large);
  EXPECT_GE(large.capacity(), size_t{16} << 20);
  EXPECT_TRUE(large.empty());
  EXPECT_TRUE(IsAdvised(large.data() + (8 << 20)));
  std::vector<float> small;
  internal::ReserveHuge(7 << 20, &small);
  EXPECT_FALSE(IsAdvised(small.data() + (4 << 20)));
  std::vector<float> none;
  internal::ReserveHuge(0, &none);
}

}  // namespace huge_pages_test
}  // namespace ptqwatch
