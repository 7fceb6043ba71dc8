#ifndef PTQWATCH_COMMON_TEXT_H_
#define PTQWATCH_COMMON_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::examples {

/// A text as numbers: each byte value that occurs has a number, in ascending order of bytes.
struct Text {
  std::vector<uint8_t> training;    ///< the first 90 %
  std::vector<uint8_t> validation;  ///< the rest
  int64_t vocabulary = 0;
};

/// Reads `path`, or, where it is empty, the King James Bible as the program `bible` (Debian package
/// bible-kjv) prints it. The message names --text and the path; InvalidArgument for an empty file.
absl::StatusOr<Text> LoadText(const std::string& path);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_TEXT_H_
