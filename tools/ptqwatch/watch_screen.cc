#include "watch_screen.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "printable.h"
#include "text_table.h"
#include "watch_sections.h"

namespace ptqwatch::internal {
namespace {

struct Section {
  std::vector<std::string> lines;
  size_t least = 1;  ///< with fewer lines it would only show a title
  size_t shown = 0;
};

constexpr size_t kAll = std::numeric_limits<size_t>::max();

// Distributes rows in this order; each section grows to at most the given number.
void Allot(const std::vector<std::pair<Section*, size_t>>& order, size_t rows) {
  for (const auto& [section, most] : order) {
    const size_t wanted = std::min(most, section->lines.size());
    if (wanted <= section->shown) continue;
    const size_t given = std::min(wanted - section->shown, rows);
    if (section->shown + given < section->least) continue;
    section->shown += given;
    rows -= given;
  }
}

std::string Footer(const WatchState& state, size_t columns, TextStyle style) {
  const std::string text = state.paused ? "paused: p resumes, q quits" : "q quits, p pauses";
  const std::string_view color = !style.color ? "" : state.paused ? kYellow : kDim;
  return Painted(std::string(CutToWidth(text, columns)), color);
}

}  // namespace

std::vector<std::string> WatchScreen(const WatchState& state, ScreenSize size, TextStyle style) {
  const size_t columns = size.columns;
  Section run{.lines = RunSection(state, columns, style)};
  Section verdict{.lines = VerdictSection(state, columns, style)};
  Section quantizers{.lines = QuantizerSection(state, columns, style), .least = 2};
  Section trends{.lines = TrendSection(state, columns, style), .least = 2};
  Section layers{.lines = LayerSection(state, columns, style), .least = 2};
  Section events{.lines = EventSection(state, columns, style), .least = 2};
  Section footer{.lines = {Footer(state, columns, style)}};
  Allot({{&verdict, 1},
         {&run, 1},
         {&quantizers, 2},
         {&run, kAll},
         {&footer, 1},
         {&verdict, 3},
         {&trends, 4},
         {&quantizers, kAll},
         {&verdict, kAll},
         {&events, 2},
         {&layers, 3},
         {&trends, kAll},
         {&layers, kAll},
         {&events, kAll}},
        size.rows);

  const std::vector<Section*> on_screen = {&run,    &verdict, &quantizers, &trends,
                                           &layers, &events,  &footer};
  size_t used = 0, sections = 0;
  for (const Section* section : on_screen) {
    used += section->shown;
    sections += section->shown > 0;
  }
  const bool spaced = used + sections <= size.rows + 1;
  std::vector<std::string> lines;
  for (Section* section : on_screen) {
    if (section->shown == 0) continue;
    if (section == &footer) {
      // Stays at the bottom, even if sections above appear or disappear.
      lines.resize(size.rows - footer.shown);
    } else if (spaced && !lines.empty()) {
      lines.emplace_back();
    }
    for (size_t i = 0; i < section->shown; ++i) lines.push_back(std::move(section->lines[i]));
  }
  return lines;
}

std::string WatchSummary(const WatchState& state, TextStyle style) {
  if (!state.newest) return "";
  const Verdict& verdict = state.newest->verdict;
  std::string text =
      StrCat("step ", state.newest->report.step, ": ", VerdictCell(verdict.state, style.color));
  if (verdict.onset_step) text += StrCat(" since step ", *verdict.onset_step);
  if (!verdict.summary.empty()) text += StrCat(": ", Readable(verdict.summary, style.utf8));
  return text;
}

}  // namespace ptqwatch::internal
