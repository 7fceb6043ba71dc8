#include "models/task_file.h"

#include <gmock/gmock.h>

#include <fstream>
#include <string>

#include "support/temp_dir.h"

namespace ptqwatch::internal {
namespace task_file_test {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class TaskFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<TaskItem>> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadTaskFile(path_, 100, 8);
  }
  // The message of the refusal, without the file's folder.
  std::string Refusal(const std::string& text) {
    const absl::Status status = Read(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    std::string message(status.message());
    if (message.starts_with("'" + dir_.path() + "/")) message.erase(1, dir_.path().size() + 1);
    return message;
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.path() + "/tasks.jsonl";
};

constexpr char kPair[] =
    R"({"task": "sciq", "gold": 1, "choices": [
        {"context": [1, 15], "continuation": [7], "chars": 4, "bytes": 5},
        {"context": [1, 16], "continuation": [8, 99], "chars": 3, "bytes": 3}]})";
constexpr char kSingle[] =
    R"({"task": "lambada", "gold": 0, "choices": [{"context": [3], "continuation": [0]}]})";

std::string OneLine(std::string text) {
  std::erase(text, '\n');
  return text + "\n";
}

// kPair with `from` replaced.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = OneLine(kPair);
  const size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

TEST_F(TaskFileTest, ReadsItems) {
  const auto items = Read(OneLine(kPair) + OneLine(kSingle));
  ASSERT_TRUE(items.ok()) << items.status();
  ASSERT_EQ(items->size(), 2u);
  const TaskItem& pair = (*items)[0];
  EXPECT_EQ(pair.task, "sciq");
  EXPECT_EQ(pair.gold, 1);
  ASSERT_EQ(pair.choices.size(), 2u);
  EXPECT_THAT(pair.choices[0].context, ElementsAre(1, 15));
  EXPECT_THAT(pair.choices[1].continuation, ElementsAre(8, 99));
  EXPECT_EQ(pair.choices[1].characters, 3);
  EXPECT_EQ((*items)[1].task, "lambada");
  EXPECT_EQ((*items)[1].choices.size(), 1u);
}

TEST_F(TaskFileTest, NamesWhatIsWrong) {
  EXPECT_EQ(Refusal(OneLine(kPair) + "{\"task\"\n"), "'tasks.jsonl:2' is not a JSON object");
  EXPECT_EQ(Refusal("[1]\n"), "'tasks.jsonl:1' is not a JSON object");
  EXPECT_THAT(Refusal(Changed("\"task\"", "\"tusk\"")),
              HasSubstr("'tasks.jsonl:1': task is missing; a string is needed"));
  EXPECT_THAT(Refusal(Changed("\"sciq\"", "\"\"")), HasSubstr("task is \"\"; a name is needed"));
  EXPECT_THAT(Refusal(Changed("\"gold\": 1", "\"gold\": 2")),
              HasSubstr("gold is 2; an integer from 0 to 1 is needed"));
  EXPECT_THAT(Refusal(Changed("\"gold\": 1", "\"gold\": -1")), HasSubstr("gold is -1"));
  EXPECT_THAT(Refusal(Changed("\"gold\": 1, ", "")), HasSubstr("gold is missing"));
  EXPECT_THAT(Refusal("{\"task\": \"a\", \"gold\": 0, \"choices\": []}"),
              HasSubstr("choices is an array; an array with at least one choice is needed"));
  EXPECT_THAT(Refusal("{\"task\": \"a\", \"gold\": 0, \"choices\": [3]}"),
              HasSubstr("choices[0] is no object"));
}

TEST_F(TaskFileTest, NamesTheChoiceThatIsWrong) {
  EXPECT_EQ(Refusal(Changed("99", "100")),
            "'tasks.jsonl:1': choices[1].continuation[1] is 100; the vocabulary has 100 tokens");
  EXPECT_THAT(Refusal(Changed("15", "-3")), HasSubstr("choices[0].context[1] is -3"));
  EXPECT_THAT(Refusal(Changed("15", "18446744073709551615")),
              HasSubstr("choices[0].context[1] is 18446744073709551615"));
  EXPECT_THAT(Refusal(Changed("15", "1.5")), HasSubstr("choices[0].context[1] is no token id"));
  EXPECT_THAT(Refusal(Changed("[7]", "[]")),
              HasSubstr("choices[0].continuation is empty; at least one token is needed"));
  EXPECT_THAT(Refusal(Changed("[1, 15]", "[]")), HasSubstr("choices[0].context is empty"));
  EXPECT_THAT(Refusal(Changed("[7]", "7")),
              HasSubstr("choices[0].continuation is 7; an array of token ids is needed"));
  EXPECT_THAT(Refusal(Changed("\"context\": [1, 16], ", "")),
              HasSubstr("choices[1].context is missing"));
  EXPECT_THAT(Refusal(Changed("[7]", "[1,2,3,4,5,6,7,8,9]")),
              HasSubstr("choices[0].continuation has 9 tokens; the model's context is 8"));
  EXPECT_THAT(Refusal(Changed("\"chars\": 3", "\"chars\": 0")), HasSubstr("choices[1].chars is 0"));
  EXPECT_THAT(Refusal(Changed("\"chars\": 3, ", "")), HasSubstr("choices[1].chars is missing"));
}

TEST_F(TaskFileTest, RefusesATaskOfTwoKinds) {
  std::string single = OneLine(kSingle);
  single.replace(single.find("lambada"), 7, "sciq");
  EXPECT_EQ(Refusal(OneLine(kPair) + single),
            "'tasks.jsonl:2': choices has 1 elements; earlier items of task 'sciq' have several");
  EXPECT_THAT(Refusal(single + OneLine(kPair)), EndsWith("have one"));
}

TEST_F(TaskFileTest, RefusesAFileWithoutItems) {
  EXPECT_EQ(Refusal(""), "'tasks.jsonl' has no items");
  const absl::Status missing = ReadTaskFile(dir_.path() + "/none.jsonl", 100, 8).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none.jsonl"));
  EXPECT_FALSE(ReadTaskFile(dir_.path(), 100, 8).ok());
}

}  // namespace task_file_test
}  // namespace ptqwatch::internal
