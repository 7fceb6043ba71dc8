#ifndef PTQWATCH_BASE_STATUS_MACROS_H_
#define PTQWATCH_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// __COUNTER__ makes the names unique, so a lambda inside `expression` may use the macros too.
#define PTQWATCH_STATUS_CONCAT_(a, b) a##b
#define PTQWATCH_STATUS_CONCAT(a, b) PTQWATCH_STATUS_CONCAT_(a, b)

/// Returns the status of `expression` (an absl::Status) from the enclosing function unless it is
/// OK.
#define PTQWATCH_RETURN_IF_ERROR(expression) \
  PTQWATCH_RETURN_IF_ERROR_(PTQWATCH_STATUS_CONCAT(ptqwatch_status_, __COUNTER__), expression)
#define PTQWATCH_RETURN_IF_ERROR_(status, expression)       \
  do {                                                      \
    if (absl::Status status = (expression); !status.ok()) { \
      return status;                                        \
    }                                                       \
  } while (false)

/// Assigns the value of `expression` (an absl::StatusOr) to `target`, which may be a declaration,
/// or returns its status. Two statements: not for a branch without braces.
#define PTQWATCH_ASSIGN_OR_RETURN(target, expression)                                          \
  PTQWATCH_ASSIGN_OR_RETURN_(PTQWATCH_STATUS_CONCAT(ptqwatch_status_or_, __COUNTER__), target, \
                             expression)
#define PTQWATCH_ASSIGN_OR_RETURN_(status_or, target, expression) \
  auto status_or = (expression);                                  \
  if (!status_or.ok()) return std::move(status_or).status();      \
  target = *std::move(status_or)

#endif  // PTQWATCH_BASE_STATUS_MACROS_H_
