#ifndef PTQWATCH_COMMON_TRAINER_FLAGS_H_
#define PTQWATCH_COMMON_TRAINER_FLAGS_H_

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace ptqwatch::examples {

/// What every example trainer can be told.
struct TrainerFlags {
  bool monitor = true;
  std::optional<int64_t> every;  ///< steps between snapshots; unset: a twentieth of the run
  std::vector<int> bits = {3, 4};
  std::vector<std::string> methods = {"rtn", "gptq"};
  int group_size = 64;  ///< -1: one group per row
  std::string calibration = "one_shot";
  std::string http = "127.0.0.1:9464";
  std::string grpc = "127.0.0.1:9465";  ///< "off": not served
  std::string run_dir;                  ///< empty: no journal
  double linger_seconds = 0;
  uint64_t seed = 0;
  int threads = 1;

  int64_t EveryOr(int64_t steps) const { return every.value_or(steps < 20 ? 1 : steps / 20); }
};

void AddTrainerFlags(CLI::App& app, TrainerFlags* flags);

/// Nothing where the program is to go on; else its exit code: 0 after --help, 2 after a mistake,
/// which is named in one line on standard error.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv);

/// For a trainer that has no flags of its own: ends the process after --help and after a mistake.
TrainerFlags ParseTrainerFlagsOrExit(int argc, char** argv);

/// Writes "NAME: message" to standard error and returns 2, the exit code of a mistake in the flags.
int FailWithUsage(const std::string& message);

/// The value, or the end of the process with "NAME: OPTION: message" and exit code 2.
template <typename T>
T ValueOrExit(const std::string& option, absl::StatusOr<T> value) {
  if (!value.ok()) std::exit(FailWithUsage(option + ": " + std::string(value.status().message())));
  return *std::move(value);
}

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_TRAINER_FLAGS_H_
