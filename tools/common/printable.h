#ifndef PTQWATCH_TOOLS_COMMON_PRINTABLE_H_
#define PTQWATCH_TOOLS_COMMON_PRINTABLE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace ptqwatch::internal {

/// Printable (base/utf8.h) for people. If the terminal is not `utf8`, "+-" and "->" replace ± and
/// →, and '?' replaces any other character outside ASCII.
std::string Readable(std::string_view text, bool utf8);

/// Escapes DEL and U+0080 to U+009F, which JSON allows unescaped, so that nothing can move the
/// cursor. The JSON value is unchanged.
std::string PrintableJson(std::string_view json);

/// Width of UTF-8 text in columns: one per character.
size_t DisplayWidth(std::string_view text);
std::string_view CutToWidth(std::string_view text, size_t columns);
std::string PadLeft(std::string_view text, size_t columns);
std::string PadRight(std::string_view text, size_t columns);

/// "±" or "+-".
std::string_view PlusMinus(bool utf8);

/// Formats `digits` significant digits, at least 1; "1.23e5" and "1.23e-4" outside [1e-3, 1e5). "-"
/// unless finite.
std::string NumberText(double value, int digits);
/// "3.33e-4", with `decimals` digits after the point; "0" for zero, "-" unless finite.
std::string ScientificText(double value, int decimals);
/// A learning rate in the same form; "-" if unknown.
std::string RateText(std::optional<double> learning_rate);
/// "4.53±0.21": both with as many decimals as two significant digits of the standard error need, at
/// most `max_decimals`. The value alone without an error; "-" unless the value is finite.
std::string EstimateText(double value, std::optional<double> standard_error, bool utf8,
                         int max_decimals = 4);
/// "run        run-1\n": a name in its own column, and its value.
std::string FieldLine(std::string_view name, std::string_view value);
/// "12 s", "3.2 min", "1.4 h", "2.0 days"; "0 s" for a negative age.
std::string AgeText(double seconds);
/// "14:03:22", local time.
std::string ClockText(double unix_seconds);
/// "12 s ago".
std::string AgoText(double seconds);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_COMMON_PRINTABLE_H_
