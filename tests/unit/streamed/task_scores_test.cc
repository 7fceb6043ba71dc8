#include "streamed/task_scores.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

namespace ptqwatch::internal {
namespace task_scores_test {

// A document of task "sciq" with choices of 4 and 8 characters, the right one, and the sums of its
// choices without and with quantization.
struct Document {
  int64_t gold;
  double full[2];
  double quantized[2];
};

// Worked by hand. Columns: which choice has the higher sum, and the higher sum / characters.
constexpr Document kDocuments[] = {
    {0, {-2, -3}, {-2, -3}},        // 0 and 1 (-0.5, -0.375); the same
    {0, {-2, -5}, {-6, -5}},        // 0 and 0 (-0.5, -0.625); 1 and 1
    {1, {-3, -2}, {-3, -2}},        // 1 and 1; the same
    {1, {-3, -4}, {-3, -4}},        // 0 and 1 (-0.75, -0.5); the same
    {1, {-1, -8}, {-9, -8}},        // 0 and 0 (-0.25, -1); 1 and 1
    {0, {-4, -4}, {-4, -4}},        // a tie: 0 and 1
    {1, {-2, -4}, {-2, -4}},        // 0, and a tie (-0.5, -0.5): 0
    {0, {-1, -9}, {-1, -9}},        // 0 and 0
    {1, {-7, -6}, {-5, -6}},        // 1 and 1; 0 and 1 (-1.25, -0.75)
    {0, {-1.5, -6.5}, {-8, -6.5}},  // 0 and 0; 1 and 1
};
// acc: right with full precision in documents 0, 1, 2, 5, 7, 8, 9; quantized in 0, 2, 4, 5, 7.
// acc_norm: 1, 2, 3, 7, 8, 9; quantized 2, 3, 4, 7, 8.

struct Scored {
  Scored() {
    for (const Document& document : kDocuments) {
      TaskItem item{.task = "sciq", .gold = document.gold};
      item.choices = {{{1}, {2}, 4}, {{1}, {3}, 8}};
      items.push_back(item);
      full.push_back({{document.full[0]}, {document.full[1]}});
      quantized.push_back({{document.quantized[0]}, {document.quantized[1]}});
    }
  }
  std::vector<TaskItem> items;
  std::vector<ItemScores> full;
  std::vector<ItemScores> quantized;
};

// A task of two single choices: perplexity exp(2), one of them greedy.
void AddLambada(Scored& scored) {
  for (const double sum : {-1.0, -3.0}) {
    scored.items.push_back({.task = "lambada", .gold = 0, .choices = {{{1}, {2}, 0}}});
    scored.full.push_back({{sum, sum == -1}});
    scored.quantized.push_back({{2 * sum, false}});
  }
}

TEST(ScoreTasksTest, TenDocumentsByHand) {
  const Scored scored;
  const TaskScores scores = ScoreTasks(scored.items, scored.full);
  ASSERT_EQ(scores.tasks.size(), 2u);
  const TaskReport& acc = scores.tasks[0];
  EXPECT_EQ(acc.task, "sciq");
  EXPECT_EQ(acc.metric, "acc");
  EXPECT_EQ(acc.examples, 10);
  EXPECT_DOUBLE_EQ(*acc.value, 0.7);
  // sqrt((7 * 0.3^2 + 3 * 0.7^2) / 9 / 10) = sqrt(2.1 / 90)
  EXPECT_NEAR(*acc.value_stderr, 0.15275252316519466, 1e-14);
  EXPECT_FALSE(acc.degradation_ratio);
  const TaskReport& norm = scores.tasks[1];
  EXPECT_EQ(norm.metric, "acc_norm");
  EXPECT_DOUBLE_EQ(*norm.value, 0.6);
  EXPECT_NEAR(*norm.value_stderr, 0.16329931618554522, 1e-14);  // sqrt(2.4 / 90)
  EXPECT_EQ(scores.accuracy_ratio, acc.value);
  EXPECT_NEAR(*scores.accuracy_stderr, *acc.value_stderr, 1e-14);
  EXPECT_FALSE(scores.degradation_ratio);
}

TEST(CompareTasksTest, TenDocumentsByHand) {
  const Scored scored;
  const TaskScores scores = CompareTasks(scored.items, scored.full, scored.quantized);
  const TaskReport& acc = scores.tasks[0];
  EXPECT_DOUBLE_EQ(*acc.value, 0.5);
  EXPECT_NEAR(*acc.value_stderr, std::sqrt(2.5 / 90), 1e-14);
  // Three documents lost (1, 8, 9), one gained (4), three wrong before (3, 4, 6): r = 2 / 3.
  EXPECT_DOUBLE_EQ(*acc.degradation_ratio, 2.0 / 3);
  // Residuals: 1 for each lost one, -1 - 2/3 for 4, -2/3 for 3 and 6, 0 for the others. Squares:
  // 3 + 25/9 + 8/9 = 20/3; sqrt(10/9 * 20/3) / 3.
  EXPECT_NEAR(*acc.degradation_stderr, std::sqrt(200.0 / 27) / 3, 1e-14);
  const TaskReport& norm = scores.tasks[1];
  EXPECT_DOUBLE_EQ(*norm.value, 0.5);
  // Lost 1 and 9, gained 4; wrong before: 0, 4, 5, 6.
  EXPECT_DOUBLE_EQ(*norm.degradation_ratio, 0.25);
  // 2 + (5/4)^2 + 3 / 16 = 3.75
  EXPECT_NEAR(*norm.degradation_stderr, std::sqrt(10.0 / 9 * 3.75) / 4, 1e-14);
  EXPECT_DOUBLE_EQ(*scores.degradation_ratio, 2.0 / 3);
  EXPECT_NEAR(*scores.degradation_stderr, *acc.degradation_stderr, 1e-14);
}

TEST(ScoreTasksTest, SingleChoicesHavePerplexity) {
  Scored scored;
  AddLambada(scored);
  const TaskScores scores = CompareTasks(scored.items, scored.full, scored.quantized);
  ASSERT_EQ(scores.tasks.size(), 4u);
  const TaskScores full = ScoreTasks(scored.items, scored.full);
  EXPECT_EQ(full.tasks[2].task, "lambada");
  EXPECT_EQ(full.tasks[2].metric, "acc");
  EXPECT_EQ(full.tasks[2].examples, 2);
  EXPECT_DOUBLE_EQ(*full.tasks[2].value, 0.5);
  EXPECT_EQ(full.tasks[3].metric, "perplexity");
  EXPECT_DOUBLE_EQ(*full.tasks[3].value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(*full.tasks[3].value_stderr, std::exp(2.0));  // sd sqrt(2), sqrt(n) sqrt(2)
  EXPECT_DOUBLE_EQ(*scores.tasks[3].value, std::exp(4.0));
  EXPECT_FALSE(scores.tasks[3].degradation_ratio);
  EXPECT_DOUBLE_EQ(*scores.tasks[2].degradation_ratio, 1);
}

TEST(ScoreTasksTest, TasksCountTheSameInTheMean) {
  Scored scored;
  AddLambada(scored);
  const TaskScores full = ScoreTasks(scored.items, scored.full);
  EXPECT_DOUBLE_EQ(*full.accuracy_ratio, (0.7 + 0.5) / 2);
  EXPECT_NEAR(*full.accuracy_stderr, std::sqrt(2.1 / 90 + 0.25) / 2, 1e-14);
  const TaskScores scores = CompareTasks(scored.items, scored.full, scored.quantized);
  EXPECT_DOUBLE_EQ(*scores.accuracy_ratio, 0.25);
  // Means lost: 0.2 and 0.5; wrong before: 0.3 and 0.5.
  const double ratio = 0.7 / 0.8;
  EXPECT_DOUBLE_EQ(*scores.degradation_ratio, ratio);
  // Residuals of "sciq": 1 three times, -1 - r, -r twice, 0 four times; of "lambada": 1 and -r.
  const double mean = (2 - 3 * ratio) / 10;
  const double squares = 3 + (1 + ratio) * (1 + ratio) + 2 * ratio * ratio - 10 * mean * mean;
  const double lambada = (1 + ratio) * (1 + ratio) / 4;
  EXPECT_NEAR(*scores.degradation_stderr, std::sqrt(squares / 90 + lambada) / 0.8, 1e-14);
}

TEST(CompareTasksTest, LeavesOutWhatCannotBeEstimated) {
  Scored scored;
  scored.items.resize(1);  // right before
  scored.full.resize(1);
  scored.quantized.resize(1);
  const TaskScores scores = CompareTasks(scored.items, scored.full, scored.quantized);
  EXPECT_DOUBLE_EQ(*scores.tasks[0].value, 1);
  EXPECT_FALSE(scores.tasks[0].value_stderr);
  EXPECT_FALSE(scores.tasks[0].degradation_ratio);
  EXPECT_DOUBLE_EQ(*scores.accuracy_ratio, 1);
  EXPECT_FALSE(scores.accuracy_stderr);
  EXPECT_FALSE(scores.degradation_ratio);
  EXPECT_FALSE(scores.degradation_stderr);
  const TaskScores none = ScoreTasks({}, {});
  EXPECT_TRUE(none.tasks.empty());
  EXPECT_FALSE(none.accuracy_ratio);
}

}  // namespace task_scores_test
}  // namespace ptqwatch::internal
