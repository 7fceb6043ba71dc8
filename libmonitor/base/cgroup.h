#ifndef PTQWATCH_BASE_CGROUP_H_
#define PTQWATCH_BASE_CGROUP_H_

#include <functional>
#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Calls `visit` with the folder of the process's group of `controller` ("cpu", "memory"), and of
/// each of its ancestors, any of which may set a limit. `v2` says which files to expect there. A
/// process may be in a hierarchy of each version. `root` replaces "" in front of /proc and /sys,
/// for tests.
void ForEachCgroup(std::string_view controller, const std::string& root,
                   const std::function<void(const std::string& folder, bool v2)>& visit);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_CGROUP_H_
