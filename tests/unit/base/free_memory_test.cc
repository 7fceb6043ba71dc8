#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace free_memory_test {

class FreeMemory : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return dir_.path(); }
  testing::TempDir dir_;
};

TEST_F(FreeMemory, IsWhatTheMachineHasAvailable) {
  Write("/proc/meminfo", "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable:     700 kB\n");
  EXPECT_EQ(FreeMemoryBytes(root()), 700 * 1024);
}

TEST_F(FreeMemory, IsUnknownWithoutProc) {
  EXPECT_EQ(FreeMemoryBytes(root()), std::numeric_limits<int64_t>::max());
}

TEST_F(FreeMemory, TakesTheTightestGroupAndCountsItsCacheAsFree) {
  Write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "5000\n");
  Write("/sys/fs/cgroup/a/memory.max", "100000\n");
  Write("/sys/fs/cgroup/a/memory.current", "90000\n");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 3000\n");
  EXPECT_EQ(FreeMemoryBytes(root()), 13000);
}

TEST_F(FreeMemory, ReadsAV1Group) {
  Write("/proc/meminfo", "MemAvailable: 1000000 kB\n");
  Write("/proc/self/cgroup", "4:cpu:/x\n7:memory:/job\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4000\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "9000\n");
  EXPECT_EQ(FreeMemoryBytes(root()), 0);  // over its limit already
}

TEST_F(FreeMemory, KnowsTheRealMachine) {
  EXPECT_GT(FreeMemoryBytes(), 0);
  EXPECT_LT(FreeMemoryBytes(), std::numeric_limits<int64_t>::max());
}

TEST_F(FreeMemory, FitsABudgetToHalfOfWhatIsLeft) {
  ByteBudget budget(1000);
  ASSERT_TRUE(budget.Reserve(300, "a replica").ok());
  Write("/proc/meminfo", "MemAvailable: 1 kB\n");
  FitBudget(2000, budget, root());
  EXPECT_EQ(budget.limit(), 300 + 512);
  FitBudget(400, budget, root());
  EXPECT_EQ(budget.limit(), 400);
}

}  // namespace free_memory_test
}  // namespace ptqwatch::internal
