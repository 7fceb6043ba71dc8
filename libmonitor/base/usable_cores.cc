#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

namespace ptqwatch::internal {
namespace {

// "max 100000" or "150000 100000".
double QuotaOfV2(const std::string& path) {
  std::ifstream file(path);
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  try {
    return std::stod(quota) / period;
  } catch (...) {
    return std::numeric_limits<double>::infinity();
  }
}

double QuotaOfV1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return quota / period;
}

// A limit may sit on any ancestor of the process's group.
double CgroupQuota(const std::string& root) {
  double lowest = std::numeric_limits<double>::infinity();
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    while (true) {
      const std::string folder =
          root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers) + group;
      lowest = std::min(lowest, v2 ? QuotaOfV2(folder + "/cpu.max") : QuotaOfV1(folder));
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return lowest;
}

}  // namespace

int AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int UsableCores(const std::string& root) {
  int cores = AllowedCpus();
  const double quota = CgroupQuota(root);
  if (quota < cores) cores = std::max(1, static_cast<int>(quota));
  return cores;
}

}  // namespace ptqwatch::internal
