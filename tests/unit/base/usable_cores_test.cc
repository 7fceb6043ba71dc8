#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace usable_cores_test {

class SpareCores : public ::testing::Test {
 protected:
  void SetUp() override {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    affinity_ = CPU_COUNT(&set);
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const testing::TempDir dir_;
  const std::string root_ = dir_.path();
  int affinity_ = 0;
};

TEST_F(SpareCores, IsTheAffinityWithoutACgroup) { EXPECT_EQ(UsableCores(root_), affinity_); }

TEST_F(SpareCores, TakesTheSmallestQuotaOfTheV2Ancestors) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
}

TEST_F(SpareCores, IgnoresAnUnlimitedQuota) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCores(root_), affinity_);
}

TEST_F(SpareCores, ReadsAV1Quota) {
  Write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/job\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(UsableCores(root_), 1);
}

TEST_F(SpareCores, SurvivesGarbage) {
  Write("/proc/self/cgroup", "garbage\n0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "lots of it\n");
  EXPECT_EQ(UsableCores(root_), affinity_);
}

}  // namespace usable_cores_test
}  // namespace ptqwatch::internal
