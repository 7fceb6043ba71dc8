#ifndef PTQWATCH_TOOLS_PTQWATCH_FLAGS_H_
#define PTQWATCH_TOOLS_PTQWATCH_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "beside_trainer.h"
#include "client/target.h"
#include "ptqwatch/serve_options.h"
#include "ptqwatch/verdict_options.h"

namespace ptqwatch::internal {

struct WatchFlags {
  Target target;
  bool json = false;
  bool plain = false;
  std::optional<int64_t> since = 0;  ///< unset: now
  std::optional<int64_t> count = std::nullopt;
  std::optional<double> timeout_seconds = std::nullopt;
  bool keep = false;
};

struct StatusFlags {
  Target target;
  bool json = false;
};

struct SnapshotFlags {
  Target target;
  bool wait = false;
  bool json = false;
  double timeout_seconds = 600;
};

struct SliceFlags {
  Target target;
  std::string method;
  int bits = 0;
  std::string format = {};  ///< empty: the method's
  int points = 21;
  bool wait = false;
  double timeout_seconds = 3600;
};

struct CooldownFlags {
  Target target;
  int64_t decay_steps = 0;  ///< 0: from the trainer's options
  bool cancel = false;
  bool wait = false;
  double timeout_seconds = 86400;
};

struct PauseFlags {
  Target target;
};

struct ResumeFlags {
  Target target;
};

struct EveryFlags {
  Target target;
  int64_t steps = 0;
};

struct ServeFlags {
  std::vector<std::string> run_dirs;
  ServeOptions options = {};
  BesideTrainer beside = {};
};

struct ReplayFlags {
  std::string journal;  ///< a file, a run directory, or "-"
  bool json = false;
  VerdictOptions options = {};
};

struct HistoryFlags {
  std::string journal;  ///< as above
  bool json = false;
  bool csv = false;
  int64_t since = 0;
};

struct LayersFlags {
  std::string journal;  ///< as above
  std::optional<int64_t> step = std::nullopt;
  int64_t top = 20;
  bool csv = false;
};

struct ReportFlags {
  std::string run_dir;
  std::string output;  ///< a file
};

/// For the program ptqwatch-trajectory, which parses them.
struct TrajectoryFlags {
  std::vector<std::string> arguments;
};

/// Needs no server: --help, --version.
struct PrintText {
  std::string text;
};

using Invocation = std::variant<WatchFlags, StatusFlags, SnapshotFlags, SliceFlags, CooldownFlags,
                                PauseFlags, ResumeFlags, EveryFlags, ServeFlags, ReplayFlags,
                                HistoryFlags, LayersFlags, ReportFlags, TrajectoryFlags, PrintText>;

/// Parses the command line. InvalidArgument with one line that names the option and its value.
absl::StatusOr<Invocation> ParseCommandLine(int argc, const char* const* argv);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FLAGS_H_
