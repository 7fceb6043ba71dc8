#ifndef PTQWATCH_TOOLS_PTQWATCH_PRINTABLE_H_
#define PTQWATCH_TOOLS_PTQWATCH_PRINTABLE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Text from elsewhere as it may be put on a terminal: control characters become '?', so nothing in
/// it can move the cursor, and broken UTF-8 U+FFFD.
std::string Printable(std::string_view text);

/// JSON with the control characters that it may contain as they are (DEL and U+0080 to U+009F)
/// escaped: the same value, and nothing in it can move the cursor.
std::string PrintableJson(std::string_view json);

/// Columns that UTF-8 text takes, one a character.
size_t DisplayWidth(std::string_view text);
/// The first `columns` characters.
std::string_view CutToWidth(std::string_view text, size_t columns);
/// Padded with spaces to `columns`.
std::string PadLeft(std::string_view text, size_t columns);
std::string PadRight(std::string_view text, size_t columns);

/// "±" or "+-".
std::string_view PlusMinus(bool utf8);

/// `digits` significant digits, at least 1; "1.23e5" and "1.23e-4" outside [1e-3, 1e5). "-" unless
/// finite.
std::string NumberText(double value, int digits);
/// "3.33e-4", with `decimals` digits after the point; "0" for zero, "-" unless finite.
std::string ScientificText(double value, int decimals);
/// "4.53±0.21": two significant digits of the standard error, if these are no more decimals than
/// `most_decimals`, decide how many are shown of both. The value alone where there is no error, "-"
/// unless it is finite.
std::string EstimateText(double value, std::optional<double> standard_error, bool utf8,
                         int most_decimals = 4);
/// "12 s", "3.2 min", "1.4 h", "2.0 days"; "0 s" for a negative age.
std::string AgeText(double seconds);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_PRINTABLE_H_
