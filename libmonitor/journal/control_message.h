#ifndef PTQWATCH_JOURNAL_CONTROL_MESSAGE_H_
#define PTQWATCH_JOURNAL_CONTROL_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/control.h"

// A command and its answer on the control socket of a run directory: one line of JSON each.

namespace ptqwatch::internal {

/// Longest line of a command or an answer.
inline constexpr size_t kMaxControlBytes = 4096;

/// {"command": NAME} with the command's members beside the name; no newline.
std::string CommandToJson(const Command& command);
/// The result of Control::Do; no newline.
std::string AnswerToJson(const absl::StatusOr<int64_t>& answer);

/// Inverse of CommandToJson; InvalidArgument for any other text.
absl::StatusOr<Command> CommandFromJson(std::string_view line);
/// Inverse of AnswerToJson; Internal for any other text.
absl::StatusOr<int64_t> AnswerFromJson(std::string_view line);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOURNAL_CONTROL_MESSAGE_H_
