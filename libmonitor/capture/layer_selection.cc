#include "capture/layer_selection.h"

#include <algorithm>

#include "absl/strings/str_join.h"
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

absl::Status ValidateOverrides(const SpecOverrides& overrides,
                               absl::Span<const QuantizerSpec> quantizers) {
  std::vector<std::string> names;
  for (const QuantizerSpec& spec : quantizers) names.push_back(ShortName(KeyOf(spec)));
  for (const SpecOverride& given : overrides) {
    const std::string field = StrCat("overrides['", given.layers, "']");
    if (const absl::Status status = Validate(given.spec); !status.ok()) {
      return absl::InvalidArgumentError(StrCat(field, ": ", status));
    }
    if (given.of.empty() || std::find(names.begin(), names.end(), given.of) != names.end()) {
      continue;
    }
    return absl::InvalidArgumentError(StrCat(
        field, ".of = '", given.of, "': is none of the quantizers, ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

absl::Status CheckOverridesMatch(const SpecOverrides& overrides,
                                 absl::Span<const std::string> layers) {
  for (const SpecOverride& given : overrides) {
    const auto matches = [&](const std::string& layer) { return GlobMatch(given.layers, layer); };
    if (std::any_of(layers.begin(), layers.end(), matches)) continue;
    return absl::InvalidArgumentError(
        StrCat("overrides['", given.layers, "']: matches no layer that is quantized"));
  }
  return absl::OkStatus();
}

const QuantizerSpec& SpecForLayer(const SpecOverrides& overrides, const QuantizerSpec& spec,
                                  std::string_view layer) {
  for (const SpecOverride& given : overrides) {
    const bool of_spec =
        given.of.empty() ? KeyOf(given.spec) == KeyOf(spec) : given.of == ShortName(KeyOf(spec));
    if (of_spec && GlobMatch(given.layers, layer)) return given.spec;
  }
  return spec;
}

}  // namespace ptqwatch::internal
