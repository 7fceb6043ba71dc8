#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_FLAGS_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_FLAGS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::tools {

struct Flags {
  std::string weights;
  std::string inputs;  ///< empty: none
  std::string out;
  QuantizerSpec spec;
  std::vector<SpecOverride> overrides;  ///< globs over module names
  CheckpointFormat format = CheckpointFormat::kCompressedTensors;
  std::string layers;                  ///< a glob over module names; empty: see layer_plan.h
  std::vector<std::string> exclude;    ///< globs
  std::vector<std::string> input_map;  ///< "MODULES=INPUTS"
  int threads = 1;
  bool force = false;

  /// The spec for a module: the first override's that matches, else `spec`.
  const QuantizerSpec& SpecFor(const std::string& module) const;
};

/// Writes "quantize_checkpoint: `message`" to standard error.
void Warn(std::string_view message);

/// Warns and returns 2, the exit code of a mistake in the flags.
int FailWithUsage(std::string_view message);

/// Fills in `flags`, or returns the exit code with which the program must end: 0 after --help, 2
/// after a mistake, which it has reported in one line on standard error.
std::optional<int> ParseFlags(int argc, char** argv, Flags* flags);

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_FLAGS_H_
