#ifndef PTQWATCH_TOOLS_PTQWATCH_RUN_NAME_H_
#define PTQWATCH_TOOLS_PTQWATCH_RUN_NAME_H_

#include <string>

namespace ptqwatch::internal {

/// What a run is called after its directory or journal: the last part of the path.
std::string NameOfRun(const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_RUN_NAME_H_
