#include "base/cpu_reading.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace cpu_reading_test {

class CpuReadingTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = dir_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // The lines of all CPUs with the same idle and iowait ticks.
  void WriteStat(int idle, int iowait) {
    std::string text = "cpu  1 2 3 999999 5 0 0 0 0 0\n";
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      text += "cpu" + std::to_string(cpu) + " 10 0 20 " + std::to_string(idle) + " " +
              std::to_string(iowait) + " 0 0 0 0 0\n";
    }
    Write("/proc/stat", text + "intr 12 34\n");
  }
  int Allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    return CPU_COUNT(&set);
  }
  testing::TempDir dir_;
};

TEST_F(CpuReadingTest, SumsTheIdleTimeOfTheAllowedCpus) {
  WriteStat(300, 100);
  Write("/proc/thread-self/schedstat", "1500000000 2500000000 12\n");
  const std::optional<CpuReading> reading = ReadCpu(dir_.path());
  ASSERT_TRUE(reading);
  // 400 ticks of 10 ms on each.
  EXPECT_NEAR(reading->idle, 4.0 * Allowed(), 1e-9);
  EXPECT_NEAR(reading->waited, 2.5, 1e-9);
}

TEST_F(CpuReadingTest, SumsTheThrottledTimeOfTheCgroups) {
  WriteStat(1, 1);
  Write("/proc/thread-self/schedstat", "1 1 1\n");
  EXPECT_EQ(ReadCpu(dir_.path())->throttled, 0);
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/pod\n0::/pod/run\n");
  Write("/sys/fs/cgroup/pod/run/cpu.stat",
        "usage_usec 9000000\nnr_throttled 3\nthrottled_usec 1500000\n");
  Write("/sys/fs/cgroup/pod/cpu.stat", "throttled_usec 500000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/pod/cpu.stat", "nr_periods 7\nthrottled_time 250000000\n");
  EXPECT_NEAR(ReadCpu(dir_.path())->throttled, 2.25, 1e-9);
}

TEST_F(CpuReadingTest, IsAbsentIfTheSystemDoesNotSay) {
  EXPECT_FALSE(ReadCpu(dir_.path()));
  WriteStat(1, 1);
  EXPECT_FALSE(ReadCpu(dir_.path()));  // no schedstat
  Write("/proc/thread-self/schedstat", "nonsense");
  EXPECT_FALSE(ReadCpu(dir_.path()));
}

TEST_F(CpuReadingTest, CountsTheOwnWork) {
  const std::optional<CpuReading> before = ReadCpu();
  if (!before) GTEST_SKIP() << "this system has no /proc/stat or schedstat";
  volatile double sink = 0;
  std::optional<CpuReading> after = before;
  while (after->own - before->own < 0.02) {
    for (int i = 0; i < 100000; ++i) sink = sink + i;
    after = ReadCpu();
    ASSERT_TRUE(after);
  }
  EXPECT_GE(after->wall - before->wall, 0.019);
  EXPECT_GE(after->process - before->process, 0.019);
}

TEST_F(CpuReadingTest, GivesTheTimeOfAnotherProcess) {
  EXPECT_GT(CpuSecondsOf(getpid()), 0);
  EXPECT_GT(CpuSecondsOf(getppid()), 0);
  // No process has the number 2^22.
  for (const pid_t none : {0, -1, 1 << 22}) EXPECT_EQ(CpuSecondsOf(none), 0);
}

}  // namespace cpu_reading_test
}  // namespace ptqwatch::internal
