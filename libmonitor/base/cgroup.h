#ifndef PTQWATCH_BASE_CGROUP_H_
#define PTQWATCH_BASE_CGROUP_H_

#include <functional>
#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Calls `visit` with the folder of the process's `controller` cgroup ("cpu", "memory") and the
/// folder of each of its ancestors, any of which may set a limit. `v2` tells which files the folder
/// has. A process may be in a hierarchy of each version. `root` is put in front of /proc and /sys,
/// for tests.
void ForEachCgroup(std::string_view controller, const std::string& root,
                   const std::function<void(const std::string& folder, bool v2)>& visit);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_CGROUP_H_
