#ifndef PTQWATCH_COMMON_TRAINER_FLAGS_H_
#define PTQWATCH_COMMON_TRAINER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "ptqwatch/options.h"

namespace ptqwatch::examples {

/// The flags of every example trainer.
struct TrainerFlags {
  bool monitor = true;
  bool wait = false;  ///< training waits for each snapshot, so that none is skipped
  std::optional<ScheduleOptions> every;  ///< when to take snapshots; default: 20 per run
  int64_t decay_density = ScheduleOptions().decay_density;
  std::vector<int> bits = {3, 4};
  std::vector<std::string> methods = {"rtn", "gptq"};
  std::vector<std::string> quantizers;  ///< short names; empty: every method at all bits
  int group_size = 64;                  ///< -1: one group per row
  std::string calibration = "one_shot";
  bool artifact_size = false;           ///< as in MonitorOptions
  std::string http = "127.0.0.1:9464";  ///< "off" does not serve
  std::string grpc = "127.0.0.1:9465";  ///< "off" does not serve
  std::string targets;                  ///< file with the address for Prometheus; empty: none
  bool allow_control = false;           ///< accepts commands over gRPC
  std::string run_dir;                  ///< empty: no journal
  double linger_seconds = 0;
  std::string text;  ///< empty: the King James Bible
  uint64_t seed = 0;
  int threads = 1;
};

void AddTrainerFlags(CLI::App& app, TrainerFlags* flags);

/// The monitor options for a run of `steps` steps. REQUIRES: the flags were parsed.
MonitorOptions MakeMonitorOptions(const TrainerFlags& flags, int64_t steps);

/// Accepts numbers from `min` to `max`. Unlike CLI::Range it refuses NaN.
CLI::Validator RealFrom(double min, double max);
/// Adds a flag with the values "on" and "off".
CLI::Option* AddSwitch(CLI::App& app, const std::string& name, bool* value,
                       const std::string& help);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_TRAINER_FLAGS_H_
