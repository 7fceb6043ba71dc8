#include "trajectory/token_file.h"

#include <cstddef>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "trajectory/token_source.h"

namespace ptqwatch::internal {
namespace {

// The integer at `bytes`; negative if it is, or if it does not fit.
int64_t TokenAt(const char* bytes, const TokenSource& source) {
  uint64_t value = 0;
  for (int i = source.bytes - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  const int unused = 64 - 8 * source.bytes;
  if (source.is_signed) return static_cast<int64_t>(value << unused) >> unused;
  return static_cast<int64_t>(value);
}

}  // namespace

absl::StatusOr<TokenSequences> ReadTokenFile(const std::string& path,
                                             const TokenFileOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(const TokenSource source, OpenTokenSource(path, options.raw_bytes));
  const int64_t length = options.length;
  if (source.count <= length) {
    return absl::InvalidArgumentError(
        StrCat(Quoted(path), " has ", source.count, " tokens; a sequence of ", length,
               " predictions (--length) needs ", static_cast<uint64_t>(length) + 1));
  }
  const int64_t all = (source.count - 1) / length;
  const int64_t wanted = options.sequences == 0 ? all : options.sequences;
  if (wanted > all) {
    return absl::InvalidArgumentError(StrCat(Quoted(path), " has ", all, " sequences of ", length,
                                             " predictions, fewer than the ", wanted,
                                             " asked for"));
  }
  TokenSequences sequences{.length = length, .tokens = {}, .position = {}};
  std::string bytes(static_cast<size_t>((length + 1) * source.bytes), '\0');
  for (int64_t i = 0; i < wanted; ++i) {
    const int64_t first = i * all / wanted * length;
    PTQWATCH_RETURN_IF_ERROR(source.read(first * source.bytes, absl::MakeSpan(bytes)));
    for (int64_t t = 0; t <= length; ++t) {
      const int64_t token = TokenAt(&bytes[static_cast<size_t>(t * source.bytes)], source);
      if (token < 0) {
        return absl::InvalidArgumentError(
            StrCat(Quoted(path), ": token ", first + t, " is ", token));
      }
      sequences.tokens.push_back(token);
    }
    sequences.position.push_back(first);
  }
  return sequences;
}

absl::Status CheckVocabulary(const TokenSequences& sequences, int64_t vocabulary,
                             const std::string& path) {
  const int64_t row = sequences.length + 1;
  for (size_t i = 0; i < sequences.tokens.size(); ++i) {
    if (sequences.tokens[i] < vocabulary) continue;
    const int64_t index = static_cast<int64_t>(i);
    return absl::InvalidArgumentError(
        StrCat(Quoted(path), ": token ", sequences.position[index / row] + index % row, " is ",
               sequences.tokens[i], ", but the model's vocabulary has ", vocabulary,
               ": was the text tokenized for another model, or is --token-bytes wrong?"));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
