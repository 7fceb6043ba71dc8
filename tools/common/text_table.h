#ifndef PTQWATCH_TOOLS_COMMON_TEXT_TABLE_H_
#define PTQWATCH_TOOLS_COMMON_TEXT_TABLE_H_

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ptqwatch::internal {

inline constexpr size_t kUnlimitedColumns = std::numeric_limits<size_t>::max();
inline constexpr size_t kColumnGap = 2;  ///< spaces between columns

inline constexpr std::string_view kBold = "\x1b[1m";
inline constexpr std::string_view kDim = "\x1b[2m";
inline constexpr std::string_view kRed = "\x1b[31m";
inline constexpr std::string_view kYellow = "\x1b[33m";

/// `text` between an escape sequence that sets the colour and one that resets it; unchanged if
/// `color` is empty.
std::string Painted(std::string text, std::string_view color);

struct TextCell {
  std::string text;
  size_t width = 0;             ///< padded to this width
  bool left = false;            ///< flush left, else flush right
  std::string_view color = {};  ///< an escape sequence, or empty
};

/// One line without its end: the cells with `gap` spaces between them, cut to `columns`. A last
/// cell that is flush left is not padded.
std::string TextRow(const std::vector<TextCell>& cells, size_t gap, size_t columns);

/// `text` in lines of at most `columns`, broken at spaces if possible. Empty for an empty text.
std::vector<std::string> Wrapped(std::string_view text, size_t columns);

/// Lines of cells in columns as wide as their widest cell, two spaces apart. The first column is
/// flush left. REQUIRES: rows of equal length.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_COMMON_TEXT_TABLE_H_
