#ifndef PTQWATCH_BASE_TEXT_FILE_H_
#define PTQWATCH_BASE_TEXT_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// Largest file of text that is read whole.
inline constexpr int64_t kMaxTextBytes = int64_t{256} << 20;

/// The content of a file that the user chose; follows links. The status of errno (NotFound if it
/// does not exist), or ResourceExhausted beyond kMaxTextBytes; all messages name the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_TEXT_FILE_H_
