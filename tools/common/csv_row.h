#ifndef PTQWATCH_TOOLS_COMMON_CSV_ROW_H_
#define PTQWATCH_TOOLS_COMMON_CSV_ROW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ptqwatch::internal {

/// Comma-separated values (RFC 4180) without the end of the line. Quotes values only if needed;
/// numbers have all their digits. Unmeasured values are empty.
class CsvRow {
 public:
  CsvRow& Add(std::string_view text);
  CsvRow& Add(int64_t value);
  CsvRow& Add(double value);
  template <typename T>
  CsvRow& Add(const std::optional<T>& value) {
    return value ? Add(*value) : Add(std::string_view());
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool begun_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_COMMON_CSV_ROW_H_
