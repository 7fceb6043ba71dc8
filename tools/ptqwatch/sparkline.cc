#include "sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "printable.h"

namespace ptqwatch::internal {
namespace {

constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAscii = {"_", ".", "-", "=", "+", "*", "#", "@"};

}  // namespace

std::string Sparkline(const std::vector<double>& values, size_t columns, bool utf8) {
  const auto begin = values.end() - static_cast<ptrdiff_t>(std::min(columns, values.size()));
  double least = INFINITY, most = -INFINITY;
  for (auto value = begin; value != values.end(); ++value) {
    if (!std::isfinite(*value)) continue;
    least = std::min(least, *value);
    most = std::max(most, *value);
  }
  std::string text;
  for (auto value = begin; value != values.end(); ++value) {
    if (!std::isfinite(*value)) {
      text += ' ';
      continue;
    }
    // Halved, because the difference of two doubles may be infinite.
    const double share = most > least ? (*value / 2 - least / 2) / (most / 2 - least / 2) : 0;
    const auto level = std::min<size_t>(7, static_cast<size_t>(std::max(0.0, share) * 8));
    text += (utf8 ? kBlocks : kAscii)[level];
  }
  return text;
}

std::string PhaseLine(const std::vector<LrPhase>& phases, size_t columns, bool utf8) {
  std::string line;
  for (size_t i = phases.size() - std::min(columns, phases.size()); i < phases.size();) {
    size_t end = i;
    while (end < phases.size() && phases[end] == phases[i]) ++end;
    const std::string name =
        phases[i] == LrPhase::kUnknown ? "?" : std::string(ToString(phases[i]));
    std::string span = utf8 ? "│" : "|";
    span += CutToWidth(name, end - i - 1);
    for (size_t width = DisplayWidth(span); width < end - i; ++width) span += utf8 ? "─" : "-";
    line += span;
    i = end;
  }
  return line;
}

}  // namespace ptqwatch::internal
