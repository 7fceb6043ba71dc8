#ifndef PTQWATCH_TOOLS_PTQWATCH_TEXT_TABLE_H_
#define PTQWATCH_TOOLS_PTQWATCH_TEXT_TABLE_H_

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ptqwatch::internal {

inline constexpr size_t kUnlimitedColumns = std::numeric_limits<size_t>::max();

/// `text` between an escape sequence that sets the colour and one that ends it; as it is for no
/// colour.
std::string Painted(std::string text, std::string_view color);

struct TextCell {
  std::string text;
  size_t width = 0;             ///< padded to it
  bool left = false;            ///< flush left, else flush right
  std::string_view color = {};  ///< an escape sequence, or empty
};

/// One line without its end: the cells with `gap` spaces between them, cut to `columns`. A last
/// cell that is flush left is not padded.
std::string TextRow(const std::vector<TextCell>& cells, size_t gap, size_t columns);

/// Lines of cells in columns as wide as their widest cell, two spaces apart; the first column is
/// flush left. REQUIRES: rows of equal length.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_TEXT_TABLE_H_
