#ifndef PTQWATCH_TOOLS_PTQWATCH_FLAGS_H_
#define PTQWATCH_TOOLS_PTQWATCH_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "base/net_address.h"
#include "ptqwatch/offline/plan_from_shapes.h"

namespace ptqwatch::internal {

/// Where a trainer serves gRPC by default; see GrpcOptions.
inline constexpr int kDefaultGrpcPort = 9465;

struct WatchFlags {
  HostPort address;
  bool json = false;
  std::optional<int64_t> since = 0;  ///< unset: now
  std::optional<int64_t> count = std::nullopt;
  std::optional<double> timeout_seconds = std::nullopt;
  bool exit_when_done = false;
};

struct StatusFlags {
  HostPort address;
  bool json = false;
};

struct SnapshotFlags {
  HostPort address;
  bool wait = false;
  bool json = false;
  double timeout_seconds = 600;
};

struct SliceFlags {
  HostPort address;
  std::string method;
  int bits = 0;
  int points = 21;
  bool wait = false;
  double timeout_seconds = 3600;
};

struct PauseFlags {
  HostPort address;
};

struct ResumeFlags {
  HostPort address;
};

struct EveryFlags {
  HostPort address;
  int64_t steps = 0;
};

struct PlanFlags {
  std::string shapes;  ///< a file
  ShapePlanOptions options;
};

/// Answered without a server: --help, --version.
struct PrintText {
  std::string text;
};

using Command = std::variant<WatchFlags, StatusFlags, SnapshotFlags, SliceFlags, PauseFlags,
                             ResumeFlags, EveryFlags, PlanFlags, PrintText>;

/// Reads the command line. InvalidArgument with one line that names the option and its value.
absl::StatusOr<Command> ParseCommandLine(int argc, const char* const* argv);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FLAGS_H_
