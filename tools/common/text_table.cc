#include "text_table.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "printable.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kPlain = "\x1b[0m";

}  // namespace

std::string Painted(std::string text, std::string_view color) {
  return color.empty() ? text : StrCat(color, text, kPlain);
}

std::string TextRow(const std::vector<TextCell>& cells, size_t gap, size_t columns) {
  std::string line;
  size_t used = 0;
  for (const TextCell& cell : cells) {
    const bool last = &cell == &cells.back();
    std::string text =
        cell.left ? PadRight(cell.text, last ? 0 : cell.width) : PadLeft(cell.text, cell.width);
    if (used > 0) text.insert(0, gap, ' ');
    text = std::string(CutToWidth(text, columns - used));
    used += DisplayWidth(text);
    line += Painted(std::move(text), cell.color);
  }
  return line;
}

std::vector<std::string> Wrapped(std::string_view text, size_t columns) {
  std::vector<std::string> lines;
  while (!text.empty() && columns > 0) {
    std::string_view line = CutToWidth(text, columns);
    if (line.size() < text.size() && text[line.size()] != ' ') {
      const size_t space = line.rfind(' ');
      if (space != std::string_view::npos && space > 0) line = line.substr(0, space);
    }
    lines.emplace_back(line);
    text.remove_prefix(line.size());
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  return lines;
}

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::vector<TextCell> cells;
    for (size_t i = 0; i < row.size(); ++i) {
      cells.push_back({.text = row[i], .width = widths[i], .left = i == 0});
    }
    text += StrCat(TextRow(cells, kColumnGap, kUnlimitedColumns), "\n");
  }
  return text;
}

}  // namespace ptqwatch::internal
