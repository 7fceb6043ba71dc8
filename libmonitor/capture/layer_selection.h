#ifndef PTQWATCH_CAPTURE_LAYER_SELECTION_H_
#define PTQWATCH_CAPTURE_LAYER_SELECTION_H_

#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/options.h"

namespace ptqwatch::internal {

/// Empty when a parameter known by `names` (canonical name and aliases) is selected, else the
/// reason why not.
std::string WhyNotSelected(const LayerSelection& selection, const std::vector<std::string>& names);

/// The spec a layer gets in place of `spec`, which is `spec` itself where no override matches:
/// MonitorOptions::overrides.
const QuantizerSpec& SpecForLayer(const MonitorOptions& options, const QuantizerSpec& spec,
                                  std::string_view layer);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_LAYER_SELECTION_H_
