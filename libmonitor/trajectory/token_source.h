#ifndef PTQWATCH_TRAJECTORY_TOKEN_SOURCE_H_
#define PTQWATCH_TRAJECTORY_TOKEN_SOURCE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ptqwatch::internal {

/// The integers of a file, as they lie there.
struct TokenSource {
  int bytes = 0;           ///< of an integer, little-endian: 1, 2, 4 or 8
  bool is_signed = false;  ///< two's complement
  int64_t count = 0;
  /// Fills `out` with the bytes from `offset` on, counted from the first integer.
  std::function<absl::Status(int64_t offset, absl::Span<char> out)> read;
};

/// Opens a file of tokens (token_file.h). `raw_bytes`: 2 or 4, for files in no other format.
absl::StatusOr<TokenSource> OpenTokenSource(const std::string& path, int raw_bytes);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_TOKEN_SOURCE_H_
