#ifndef PTQWATCH_TRAJECTORY_TOKEN_FILE_H_
#define PTQWATCH_TRAJECTORY_TOKEN_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ptqwatch::internal {

struct TokenFileOptions {
  int64_t length = 0;     ///< N: predictions of a sequence
  int64_t sequences = 0;  ///< evenly spaced in the file; 0: all
  int raw_bytes = 2;      ///< of a token in a raw file: 2 or 4
};

/// Sequences of tokens for a language model: N predictions each, from N + 1 tokens.
struct TokenSequences {
  int64_t length = 0;             ///< N
  std::vector<int64_t> tokens;    ///< [sequences, N + 1], row by row
  std::vector<int64_t> position;  ///< [sequences]: of the first token, in the file
  int64_t sequences() const { return static_cast<int64_t>(position.size()); }
};

/// Reads sequences from a file of tokens, of which sequence i is tokens [iN, iN + N]:
///   *.safetensors  its one tensor of integers
///   a NumPy array  of one or two dimensions, of integers; rows follow each other
///   other files    raw uint16 or uint32, little-endian; the header of llm.c's files is skipped
/// Reads only the sequences asked for. Errors name path and value: InvalidArgument (another
/// format, fewer than N + 1 tokens, fewer sequences than asked for, a negative token), DataLoss,
/// and the system's.
absl::StatusOr<TokenSequences> ReadTokenFile(const std::string& path,
                                             const TokenFileOptions& options);

/// InvalidArgument names the first token that is not below `vocabulary`, and its position.
absl::Status CheckVocabulary(const TokenSequences& sequences, int64_t vocabulary,
                             const std::string& path);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_TOKEN_FILE_H_
