#include "base/cgroup.h"

#include <fstream>

#include "base/strings.h"

namespace ptqwatch::internal {

void ForEachCgroup(std::string_view controller, const std::string& root,
                   const std::function<void(const std::string& folder, bool v2)>& visit) {
  std::ifstream file(root + "/proc/self/cgroup");
  const std::string wanted = StrCat(",", controller, ",");
  std::string line;
  while (std::getline(file, line)) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && StrCat(",", controllers, ",").find(wanted) == std::string::npos) continue;
    while (true) {
      visit(StrCat(root, "/sys/fs/cgroup", v2 ? "" : "/" + controllers, group), v2);
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
}

}  // namespace ptqwatch::internal
