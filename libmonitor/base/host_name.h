#ifndef PTQWATCH_BASE_HOST_NAME_H_
#define PTQWATCH_BASE_HOST_NAME_H_

#include <string>
#include <string_view>

#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// Returns this machine's name as gethostname() does, or "" if it has none. Thread-safe.
PTQWATCH_EXPORT std::string HostName();

/// Whether `host` names another machine than this one. An empty name is unknown, not another one.
bool IsOtherHost(std::string_view host);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_HOST_NAME_H_
