#ifndef PTQWATCH_CAPTURE_LAYER_SELECTION_H_
#define PTQWATCH_CAPTURE_LAYER_SELECTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// Why a parameter with these `names` (canonical name and aliases) is not selected; empty if it is.
std::string WhyNotSelected(const LayerSelection& selection, const std::vector<std::string>& names);

/// The spec that MonitorOptions::overrides gives a layer instead of `spec`; `spec` itself if no
/// override matches.
const QuantizerSpec& SpecForLayer(const MonitorOptions& options, const QuantizerSpec& spec,
                                  std::string_view layer);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_LAYER_SELECTION_H_
