#ifndef PTQWATCH_COMMON_TEXT_H_
#define PTQWATCH_COMMON_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::examples {

/// A text as tokens: the byte values that occur in it, numbered in ascending order.
struct Text {
  std::vector<uint8_t> training;    ///< the first 90 %
  std::vector<uint8_t> validation;  ///< the last 10 %
  int64_t vocabulary = 0;
};

/// Reads the bytes of the file `path`. If `path` is empty, returns the King James Bible from the
/// program `bible` (Debian package bible-kjv). Errors name --text and the path.
absl::StatusOr<std::string> ReadText(const std::string& path);

/// Same, as tokens.
absl::StatusOr<Text> LoadText(const std::string& path);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_TEXT_H_
