#ifndef PTQWATCH_BASE_SERVER_HELLO_H_
#define PTQWATCH_BASE_SERVER_HELLO_H_

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// The descriptors that a server beside a trainer inherits; all others are closed.
inline constexpr int kHelloDescriptor = 3;    ///< the pipe of ServerHello
inline constexpr int kTrainerDescriptor = 4;  ///< the trainer's pidfd, if the kernel supports it

/// The line in which a server reports that it serves or why it cannot: one JSON object.
struct ServerHello {
  std::string version = {};
  int journal_schema = 0;
  pid_t process = 0;
  std::string http = {};  ///< HOST:PORT; empty: not served
  std::string grpc = {};
  std::string error = {};  ///< empty: the server serves
};
PTQWATCH_EXPORT std::string HelloToJson(const ServerHello& hello);
/// InvalidArgument if the line has any other form.
PTQWATCH_EXPORT absl::StatusOr<ServerHello> HelloFromJson(std::string_view line);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_SERVER_HELLO_H_
