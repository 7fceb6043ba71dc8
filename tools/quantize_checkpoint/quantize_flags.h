#ifndef PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_QUANTIZE_FLAGS_H_
#define PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_QUANTIZE_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/offline/checkpoint_export.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::examples {

struct QuantizeFlags {
  std::string weights;
  std::string inputs;  ///< empty: none
  std::string out;
  QuantizerSpec spec;
  CheckpointFormat format = CheckpointFormat::kCompressedTensors;
  std::string layers;                  ///< a glob over module names; empty: see layer_plan.h
  std::vector<std::string> exclude;    ///< globs
  std::vector<std::string> input_map;  ///< "MODULES=INPUTS"
  int threads = 1;
  bool force = false;
};

/// Nothing where the program is to go on; else its exit code.
std::optional<int> ParseQuantizeFlags(int argc, char** argv, QuantizeFlags* flags);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_TOOLS_QUANTIZE_CHECKPOINT_QUANTIZE_FLAGS_H_
