#ifndef PTQWATCH_TOOLS_TRAJECTORY_FLAGS_H_
#define PTQWATCH_TOOLS_TRAJECTORY_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "trajectory/lr_schedule.h"

namespace ptqwatch::tools {

struct Flags {
  std::vector<std::string> checkpoints;
  std::string probe;
  std::string calibration;
  int64_t length = 0;
  int64_t probe_sequences = 0;        ///< 0: all
  int64_t calibration_sequences = 0;  ///< 0: all
  int token_bytes = 2;
  std::string tasks;    ///< empty: none
  std::string run_dir;  ///< may be empty with --list and --compare
  std::string config;   ///< empty: that of each checkpoint
  std::vector<QuantizerSpec> quantizers = DefaultQuantizers();
  std::vector<SpecOverride> overrides;  ///< each with the quantizer that it is for
  bool curvature = true;
  double noise = 0.1;  ///< CheckpointMeasurement::noise_relative_norm
  bool loss_along = false;
  bool artifact_size = false;
  internal::LrSchedules schedules;
  int64_t average = 0;  ///< 0: no means
  std::vector<std::string> soup;
  int64_t max_bytes = 0;  ///< 0: free memory
  int threads = 1;
  uint64_t seed = 0;
  bool compare = false;
  bool json = false;  ///< print the comparison so
  bool csv = false;
  bool list = false;
  std::optional<int64_t> only;
  bool merge = false;
  bool follow = false;
  std::optional<int64_t> until;
};

/// Writes "ptqwatch-trajectory: `message`" to standard error.
void Warn(std::string_view message);

/// Warns and returns 2, the exit code of a mistake in the options.
int FailWithUsage(std::string_view message);

/// Fills in `flags`, or returns the exit code with which the program must end: 0 after --help, 2
/// after a mistake, which it has reported in one line on standard error.
std::optional<int> ParseFlags(int argc, char** argv, Flags* flags);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_FLAGS_H_
