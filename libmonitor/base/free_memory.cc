#include "base/free_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/cgroup.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// Returns the number after `key`, which is the first word of a line.
std::optional<int64_t> ValueOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    int64_t value = 0;
    if (words >> word && word == key && words >> value) return value;
  }
  return std::nullopt;
}

// Returns nullopt for "max", too.
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

int64_t LeftByGroup(const std::string& folder, bool v2) {
  const auto limit = NumberIn(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = NumberIn(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return kUnknown;
  const int64_t cache =
      ValueOf(folder + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  return std::max<int64_t>(0, *limit - *used + cache);
}

// Address space that is not memory: glibc reserves 64 MiB for each thread that allocates (two in a
// monitor with a run directory), and threads have stacks.
constexpr int64_t kForThreads = int64_t{2 * 64 + 16} << 20;

int64_t LeftByLimit(int resource, const std::string& key) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  const std::optional<int64_t> kilobytes = ValueOf("/proc/self/status", key);
  if (!kilobytes) return kUnknown;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - 1024 * *kilobytes);
}

}  // namespace

int64_t FreeMemoryBytes(const std::string& root) {
  int64_t least = kUnknown;
  if (const auto kilobytes = ValueOf(root + "/proc/meminfo", "MemAvailable:")) {
    least = 1024 * *kilobytes;
  }
  ForEachCgroup("memory", root, [&](const std::string& folder, bool v2) {
    least = std::min(least, LeftByGroup(folder, v2));
  });
  if (root.empty()) {
    const int64_t addresses = LeftByLimit(RLIMIT_AS, "VmSize:");
    if (addresses != kUnknown)
      least = std::min(least, std::max<int64_t>(0, addresses - kForThreads));
    least = std::min(least, LeftByLimit(RLIMIT_DATA, "VmData:"));
  }
  return least;
}

void FitBudget(int64_t max_bytes, ByteBudget& budget, const std::string& root) {
  const int64_t free = FreeMemoryBytes(root);
  const int64_t now = free == kUnknown ? kUnknown : budget.used() + free / 2;
  budget.SetLimit(std::min(max_bytes, now));
}

}  // namespace ptqwatch::internal
