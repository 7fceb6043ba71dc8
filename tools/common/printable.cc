#include "printable.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ptqwatch::internal {
namespace {

constexpr double kMinPlain = 1e-3;
constexpr double kMinScientific = 1e5;
constexpr size_t kNameWidth = 11;

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int Magnitude(double value) { return static_cast<int>(std::floor(std::log10(std::fabs(value)))); }

}  // namespace

std::string Readable(std::string_view text, bool utf8) {
  std::string readable = Printable(text);
  if (utf8) return readable;
  absl::StrReplaceAll({{"±", "+-"}, {"→", "->"}}, &readable);
  std::string ascii;
  for (const char c : readable) {
    if (static_cast<unsigned char>(c) < 0x80) {
      ascii += c;
    } else if (!IsContinuation(c)) {
      ascii += '?';
    }
  }
  return ascii;
}

std::string PrintableJson(std::string_view json) {
  std::string printable;
  for (size_t i = 0; i < json.size(); ++i) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(json[at]); };
    const bool c1 = byte(i) == 0xC2 && i + 1 < json.size() && byte(i + 1) < 0xA0;
    if (c1) ++i;
    if (c1 || byte(i) == 0x7F) {
      printable += StrFormat("\\u%04x", byte(i));
    } else {
      printable += json[i];
    }
  }
  return printable;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

std::string_view CutToWidth(std::string_view text, size_t columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if (IsContinuation(text[end])) continue;
    if (columns == 0) break;
    --columns;
  }
  return text.substr(0, end);
}

std::string PadLeft(std::string_view text, size_t columns) {
  const size_t width = DisplayWidth(text);
  return std::string(columns > width ? columns - width : 0, ' ').append(text);
}

std::string PadRight(std::string_view text, size_t columns) {
  const size_t width = DisplayWidth(text);
  return std::string(text).append(columns > width ? columns - width : 0, ' ');
}

std::string_view PlusMinus(bool utf8) { return utf8 ? "\u00b1" : "+-"; }

std::string RateText(std::optional<double> learning_rate) {
  return ScientificText(learning_rate.value_or(std::nan("")), 2);
}

std::string ScientificText(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  std::string text = StrFormat("%.*e", decimals, value);
  // printf pads the exponent: 3.33e-04.
  const size_t exponent = text.find('e') + 1;
  if (text[exponent] == '+') text.erase(exponent, 1);
  const size_t digits = text[exponent] == '-' ? exponent + 1 : exponent;
  while (digits + 1 < text.size() && text[digits] == '0') text.erase(digits, 1);
  return text;
}

std::string NumberText(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size < kMinPlain || size >= kMinScientific) return ScientificText(value, digits - 1);
  return StrFormat("%.*f", std::max(0, digits - 1 - Magnitude(value)), value);
}

std::string EstimateText(double value, std::optional<double> standard_error, bool utf8,
                         int max_decimals) {
  if (!std::isfinite(value)) return "-";
  if (!standard_error.has_value() || !std::isfinite(*standard_error) || *standard_error < 0) {
    return NumberText(value, 3);
  }
  const double error = *standard_error;
  const std::string_view plus_minus = PlusMinus(utf8);
  if (error == 0) return StrCat(NumberText(value, 3), plus_minus, "0");
  const double size = std::max(std::fabs(value), error);
  if (size < kMinPlain || size >= kMinScientific) {
    return StrCat(ScientificText(value, 2), plus_minus, ScientificText(error, 1));
  }
  const int decimals = std::clamp(1 - Magnitude(error), 0, max_decimals);
  if (error < 0.5 * std::pow(10, -decimals)) {
    // The rounded error would read as zero.
    return StrFormat("%.*f%s%s", decimals, value, plus_minus, ScientificText(error, 1));
  }
  return StrFormat("%.*f%s%.*f", decimals, value, plus_minus, decimals, error);
}

std::string FieldLine(std::string_view name, std::string_view value) {
  return StrCat(PadRight(StrCat(name, " "), kNameWidth), value, "\n");
}

std::string AgeText(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 2 * kMinute) return StrFormat("%.0f s", std::max(0.0, seconds));
  if (seconds < 2 * kHour) return StrFormat("%.1f min", seconds / kMinute);
  if (seconds < 2 * kDay) return StrFormat("%.1f h", seconds / kHour);
  return StrFormat("%.1f days", seconds / kDay);
}

std::string ClockText(double unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm local{};
  if (localtime_r(&time, &local) == nullptr) return "-";
  return StrFormat("%02d:%02d:%02d", local.tm_hour, local.tm_min, local.tm_sec);
}

std::string AgoText(double seconds) { return StrCat(AgeText(seconds), " ago"); }

}  // namespace ptqwatch::internal
