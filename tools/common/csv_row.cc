#include "csv_row.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::internal {

CsvRow& CsvRow::Add(std::string_view text) {
  if (std::exchange(begun_, true)) text_ += ',';
  if (text.find_first_of("\",\r\n") == std::string_view::npos) {
    text_ += text;
    return *this;
  }
  text_ += '"';
  for (const char c : text) {
    if (c == '"') text_ += '"';
    text_ += c;
  }
  text_ += '"';
  return *this;
}

CsvRow& CsvRow::Add(int64_t value) { return Add(std::string_view(StrCat(value))); }

CsvRow& CsvRow::Add(double value) {
  if (!std::isfinite(value)) return Add(std::string_view());
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  return Add(std::string_view(digits, static_cast<size_t>(end.ptr - digits)));
}

}  // namespace ptqwatch::internal
