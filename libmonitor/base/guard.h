#ifndef PTQWATCH_BASE_GUARD_H_
#define PTQWATCH_BASE_GUARD_H_

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch::internal {

/// The message of an exception, without the stack trace that LibTorch appends to its own.
std::string ErrorText(const std::exception& error);

/// Inside a catch block: the caught exception as a status. Its message begins with `what` and a
/// colon where `what` is not empty.
///
/// ResourceExhausted where memory ran out: std::bad_alloc, and LibTorch's errors of either
/// allocator (on the CPU that is a plain c10::Error, so it is recognised by its text). Everything
/// else is `otherwise`.
PTQWATCH_EXPORT absl::Status CaughtStatus(
    std::string_view what = {}, absl::StatusCode otherwise = absl::StatusCode::kInternal) noexcept;

/// What `function` (of type absl::Status or absl::StatusOr) returns, or CaughtStatus of what it
/// throws.
template <typename Function>
auto Guard(Function&& function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    return CaughtStatus();
  }
}

/// The same with a message that begins with `what`, and `otherwise` for all but memory.
template <typename Function>
auto Guard(std::string_view what, absl::StatusCode otherwise, Function&& function) noexcept
    -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    return CaughtStatus(what, otherwise);
  }
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_GUARD_H_
