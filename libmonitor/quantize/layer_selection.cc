#include "quantize/layer_selection.h"

#include "report/str_cat.h"

namespace ptqwatch::internal {

bool GlobMatch(std::string_view pattern, std::string_view text) {
  // Greedy with one point to come back to: linear in practice, and no recursion for a pattern of
  // many stars.
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

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

const QuantizerSpec& SpecForLayer(const MonitorOptions& options, const QuantizerSpec& spec,
                                  std::string_view layer) {
  for (const auto& [pattern, override_spec] : options.overrides) {
    if (override_spec.method == spec.method && override_spec.bits == spec.bits &&
        GlobMatch(pattern, layer)) {
      return override_spec;
    }
  }
  return spec;
}

}  // namespace ptqwatch::internal
