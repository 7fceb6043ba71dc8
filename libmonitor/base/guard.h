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

/// Returns the caught exception as a status; call inside a catch block. If `what` is not empty, the
/// message begins with `what` and a colon.
///
/// The code is ResourceExhausted if memory ran out: std::bad_alloc, and LibTorch's errors from
/// either allocator (its CPU allocator throws a plain c10::Error, recognised by its text). It is
/// `otherwise` for all other exceptions.
PTQWATCH_EXPORT absl::Status CaughtStatus(
    std::string_view what = {}, absl::StatusCode otherwise = absl::StatusCode::kInternal) noexcept;

/// Returns the result of `function` (absl::Status or absl::StatusOr), or CaughtStatus if it throws.
template <typename Function>
auto Guard(Function&& function) noexcept -> decltype(function()) {
  try {
    return function();
  } catch (...) {
    return CaughtStatus();
  }
}

/// The same, with a message that begins with `what`, and the code `otherwise` unless memory ran
/// out.
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
