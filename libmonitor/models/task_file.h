#ifndef PTQWATCH_MODELS_TASK_FILE_H_
#define PTQWATCH_MODELS_TASK_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ptqwatch::internal {

/// One of an item's answers.
struct TaskChoice {
  std::vector<int32_t> context;       ///< token ids, at least one
  std::vector<int32_t> continuation;  ///< token ids, at least one
  int64_t characters = 0;             ///< of the answer's text; 0 for the only choice
};

/// An example of a task with answers to choose from. With one choice it asks whether the model
/// continues the context in this way.
struct TaskItem {
  std::string task;
  int64_t gold = 0;  ///< position of the right choice
  std::vector<TaskChoice> choices = {};
};

/// Reads a file of JSON lines:
///   {"task": "sciq", "gold": 1,
///    "choices": [{"context": [1, 15], "continuation": [7], "chars": 4}, ...]}
/// Token ids are below `vocabulary`, and a continuation has at most `context` of them. "chars" is
/// needed if there are several choices. Other keys are ignored. A task's items have one choice each
/// or several each.
///
/// Errors: InvalidArgument names file, line, key and value; without a line it is InvalidArgument,
/// too. A file that cannot be read has the status of errno.
absl::StatusOr<std::vector<TaskItem>> ReadTaskFile(const std::string& path, int64_t vocabulary,
                                                   int64_t context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_TASK_FILE_H_
