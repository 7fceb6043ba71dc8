#include "models/task_file.h"

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text_file.h"
#include "models/config_reader.h"

namespace ptqwatch::internal {
namespace {

using nlohmann::json;

struct TaskLimits {
  int64_t vocabulary = 0;
  int64_t context = 0;
};

absl::StatusOr<std::vector<int32_t>> ReadIds(const json& choice, const ConfigReader& reader,
                                             std::string_view key, int64_t vocabulary) {
  const auto found = choice.find(std::string(key));
  if (found == choice.end() || !found->is_array()) {
    return reader.WrongValue(key, "an array of token ids is needed");
  }
  if (found->empty()) return reader.Error(key, "is empty; at least one token is needed");
  std::vector<int32_t> ids;
  ids.reserve(found->size());
  for (const json& id : *found) {
    const std::string place = StrCat(key, "[", ids.size(), "]");
    if (!id.is_number_integer()) return reader.Error(place, "is no token id");
    const auto value = id.get<int64_t>();
    if (value < 0 || value >= vocabulary) {
      return reader.Error(place,
                          StrCat("is ", id.dump(), "; the vocabulary has ", vocabulary, " tokens"));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

absl::StatusOr<TaskChoice> ReadChoice(const json& choice, const ConfigReader& reader,
                                      const TaskLimits& limits, bool single) {
  TaskChoice read;
  PTQWATCH_ASSIGN_OR_RETURN(read.context, ReadIds(choice, reader, "context", limits.vocabulary));
  PTQWATCH_ASSIGN_OR_RETURN(read.continuation,
                            ReadIds(choice, reader, "continuation", limits.vocabulary));
  if (std::ssize(read.continuation) > limits.context) {
    return reader.Error("continuation", StrCat("has ", read.continuation.size(),
                                               " tokens; the model's context is ", limits.context));
  }
  if (single) return read;
  PTQWATCH_ASSIGN_OR_RETURN(read.characters, reader.Size("chars"));
  return read;
}

// `place` is file and line.
absl::StatusOr<TaskItem> ReadItem(const std::string& line, const std::string& place,
                                  const TaskLimits& limits) {
  const json item = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!item.is_object()) {
    return absl::InvalidArgumentError(StrCat(Quoted(place), " is not a JSON object"));
  }
  const ConfigReader reader(item, place);
  TaskItem read;
  PTQWATCH_ASSIGN_OR_RETURN(read.task, reader.Text("task"));
  if (read.task.empty()) return reader.WrongValue("task", "a name is needed");
  const auto choices = item.find("choices");
  if (choices == item.end() || !choices->is_array() || choices->empty()) {
    return reader.WrongValue("choices", "an array with at least one choice is needed");
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      read.gold, reader.Size("gold", std::nullopt, 0, static_cast<int64_t>(choices->size()) - 1));
  for (const json& choice : *choices) {
    const std::string name = StrCat("choices[", read.choices.size(), "]");
    if (!choice.is_object()) return reader.Error(name, "is no object");
    PTQWATCH_ASSIGN_OR_RETURN(
        read.choices.emplace_back(),
        ReadChoice(choice, ConfigReader(choice, place, name + "."), limits, choices->size() == 1));
  }
  return read;
}

}  // namespace

absl::StatusOr<std::vector<TaskItem>> ReadTaskFile(const std::string& path, int64_t vocabulary,
                                                   int64_t context) {
  PTQWATCH_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::istringstream lines(text);
  std::vector<TaskItem> items;
  std::map<std::string, bool> single;  // by task, whether its items have one choice
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const std::string place = StrCat(path, ":", number);
    PTQWATCH_ASSIGN_OR_RETURN(
        TaskItem item, ReadItem(line, place, {.vocabulary = vocabulary, .context = context}));
    const bool alone = item.choices.size() == 1;
    if (single.emplace(item.task, alone).first->second != alone) {
      return absl::InvalidArgumentError(StrCat(
          Quoted(place), ": choices has ", item.choices.size(), " elements; earlier items of task ",
          Quoted(item.task), alone ? " have several" : " have one"));
    }
    items.push_back(std::move(item));
  }
  if (items.empty()) return absl::InvalidArgumentError(StrCat(Quoted(path), " has no items"));
  return items;
}

}  // namespace ptqwatch::internal
