#include "capture/layer_selection.h"

#include "base/glob.h"
#include "base/strings.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

std::string WhyNotSelected(const LayerSelection& selection, const std::vector<std::string>& names) {
  for (const std::string& pattern : selection.exclude) {
    for (const std::string& name : names) {
      if (GlobMatch(pattern, name)) return StrCat("excluded by the pattern '", pattern, "'");
    }
  }
  if (selection.include.empty()) return "";
  for (const std::string& pattern : selection.include) {
    for (const std::string& name : names) {
      if (GlobMatch(pattern, name)) return "";
    }
  }
  return "matches no include pattern";
}

const QuantizerSpec& SpecForLayer(const SpecOverrides& overrides, const QuantizerSpec& spec,
                                  std::string_view layer) {
  for (const auto& [pattern, override_spec] : overrides) {
    if (KeyOf(override_spec) == KeyOf(spec) && GlobMatch(pattern, layer)) return override_spec;
  }
  return spec;
}

}  // namespace ptqwatch::internal
