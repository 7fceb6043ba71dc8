#ifndef PTQWATCH_COMMON_TRAINER_FLAGS_H_
#define PTQWATCH_COMMON_TRAINER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parse_flags.h"

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
  std::string slice;                    ///< quantizer of the slice at the end, "gptq3"; empty: none
  double linger_seconds = 0;
  uint64_t seed = 0;
  int threads = 1;

  int64_t EveryOr(int64_t steps) const { return every.value_or(steps < 20 ? 1 : steps / 20); }
};

void AddTrainerFlags(CLI::App& app, TrainerFlags* flags);

/// For a trainer that has no flags of its own: ends the process after --help and after a mistake.
TrainerFlags ParseTrainerFlagsOrExit(int argc, char** argv);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_TRAINER_FLAGS_H_
