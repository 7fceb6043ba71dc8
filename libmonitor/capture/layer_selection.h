#ifndef PTQWATCH_CAPTURE_LAYER_SELECTION_H_
#define PTQWATCH_CAPTURE_LAYER_SELECTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// Why a parameter with these `names` (canonical name and aliases) is not selected; empty if it is.
std::string WhyNotSelected(const LayerSelection& selection, const std::vector<std::string>& names);

/// MonitorOptions::overrides.
using SpecOverrides = std::vector<SpecOverride>;

/// InvalidArgument that begins with "overrides['<glob>']" if a spec is invalid, or if `of` names
/// none of `quantizers`.
absl::Status ValidateOverrides(const SpecOverrides& overrides,
                               absl::Span<const QuantizerSpec> quantizers);

/// InvalidArgument that begins with "overrides['<glob>']" if a glob matches none of the quantized
/// layers: a layer that was meant would have another spec than asked for.
absl::Status CheckOverridesMatch(const SpecOverrides& overrides,
                                 absl::Span<const std::string> layers);

/// The spec that `overrides` give a layer in place of `spec`; `spec` itself if none matches.
const QuantizerSpec& SpecForLayer(const SpecOverrides& overrides, const QuantizerSpec& spec,
                                  std::string_view layer);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_LAYER_SELECTION_H_
