#include "base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "base/cgroup.h"

// OpenMP functions; null unless the process has OpenMP.
extern "C" {
int omp_get_num_places() __attribute__((weak));
int omp_get_place_num_procs(int place) __attribute__((weak));
void omp_get_place_proc_ids(int place, int* ids) __attribute__((weak));
}

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

double CgroupQuota(const std::string& root) {
  double lowest = std::numeric_limits<double>::infinity();
  ForEachCgroup("cpu", root, [&](const std::string& folder, bool v2) {
    lowest = std::min(lowest, v2 ? QuotaOfV2(folder + "/cpu.max") : QuotaOfV1(folder));
  });
  return lowest;
}

}  // namespace

cpu_set_t UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu) {
      CPU_SET(cpu, &set);
    }
  }
  if (omp_get_num_places == nullptr) return set;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<size_t>(std::max(0, omp_get_place_num_procs(place))));
    omp_get_place_proc_ids(place, ids.data());
    for (const int id : ids) CPU_SET(static_cast<size_t>(id), &set);
  }
  return set;
}

int AllowedCpus() {
  const cpu_set_t set = UsableCpus();
  return std::max(1, CPU_COUNT(&set));
}

int UsableCores(const std::string& root) {
  int cores = AllowedCpus();
  const double quota = CgroupQuota(root);
  if (quota < cores) cores = std::max(1, static_cast<int>(quota));
  return cores;
}

}  // namespace ptqwatch::internal
