#include "base/cpu_reading.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/cgroup.h"
#include "base/usable_cores.h"

namespace ptqwatch::internal {
namespace {

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Sums the idle time of the allowed CPUs: "cpu3 user nice system idle iowait ...", in ticks.
std::optional<double> IdleSeconds(const std::string& path) {
  const cpu_set_t allowed = UsableCpus();
  std::ifstream file(path);
  std::string line;
  double ticks = 0;
  bool found = false;
  while (std::getline(file, line)) {
    int cpu = 0;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0;
    std::istringstream fields(line);
    std::string name;
    if (!(fields >> name) || name.size() < 4 || name.compare(0, 3, "cpu") != 0) continue;
    if (!(std::istringstream(name.substr(3)) >> cpu) || cpu < 0 || cpu >= CPU_SETSIZE) continue;
    if (!CPU_ISSET(static_cast<size_t>(cpu), &allowed)) continue;
    if (!(fields >> user >> nice >> system >> idle >> iowait)) continue;
    ticks += idle + iowait;
    found = true;
  }
  const long ticks_per_second = sysconf(_SC_CLK_TCK);
  if (!found || ticks_per_second <= 0) return std::nullopt;
  return ticks / static_cast<double>(ticks_per_second);
}

// "nanoseconds-on-cpu nanoseconds-waiting timeslices"
std::optional<double> WaitedSeconds(const std::string& path) {
  std::ifstream file(path);
  double ran = 0, waited = 0;
  if (!(file >> ran >> waited)) return std::nullopt;
  return 1e-9 * waited;
}

// "throttled_usec 12" (v2) or "throttled_time 12000" (v1, in ns) among other lines.
double ThrottledSeconds(const std::string& root) {
  double seconds = 0;
  ForEachCgroup("cpu", root, [&](const std::string& folder, bool v2) {
    std::ifstream file(folder + "/cpu.stat");
    std::string name;
    double value = 0;
    while (file >> name >> value) {
      if (name == (v2 ? "throttled_usec" : "throttled_time")) seconds += (v2 ? 1e-6 : 1e-9) * value;
    }
  });
  return seconds;
}

}  // namespace

std::optional<CpuReading> ReadCpu(const std::string& root) {
  const std::optional<double> idle = IdleSeconds(root + "/proc/stat");
  const std::optional<double> waited = WaitedSeconds(root + "/proc/thread-self/schedstat");
  if (!idle || !waited) return std::nullopt;
  return CpuReading{.wall = Seconds(CLOCK_MONOTONIC),
                    .idle = *idle,
                    .own = Seconds(CLOCK_THREAD_CPUTIME_ID),
                    .waited = *waited,
                    .process = Seconds(CLOCK_PROCESS_CPUTIME_ID),
                    .throttled = ThrottledSeconds(root)};
}

double CpuSecondsOf(pid_t process) {
  clockid_t clock = 0;
  return process > 0 && clock_getcpuclockid(process, &clock) == 0 ? Seconds(clock) : 0;
}

}  // namespace ptqwatch::internal
