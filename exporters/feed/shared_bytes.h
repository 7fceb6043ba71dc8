#ifndef PTQWATCH_FEED_SHARED_BYTES_H_
#define PTQWATCH_FEED_SHARED_BYTES_H_

#include <memory>
#include <string>
#include <utility>

namespace ptqwatch::internal {

/// Immutable bytes, shared by all clients that are sent them. Null means absent.
using SharedBytes = std::shared_ptr<const std::string>;

inline SharedBytes Share(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_FEED_SHARED_BYTES_H_
