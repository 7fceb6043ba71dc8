#include "streamed/task_batches.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ATen/ops/log_softmax.h"
#include "ATen/ops/tensor.h"
#include "streamed/checkpoint_plan.h"
#include "unit/streamed/tiny_checkpoint.h"

namespace ptqwatch::internal {
namespace task_batches_test {

using ::testing::HasSubstr;
using testing::TinyCheckpoint;

std::vector<int32_t> Ids(int64_t count, uint64_t seed) {
  const at::Tensor drawn = testing::RandomTokens(1, count, 37, seed);
  const int64_t* ids = drawn.const_data_ptr<int64_t>();
  return {ids, ids + count};
}

// Items of three tasks. Contexts of every fifth length, up to some beyond the model's; the choices
// of "copa" differ in their contexts, and those of "mmlu" in one token at the end.
std::vector<TaskItem> SomeItems() {
  std::vector<TaskItem> items;
  for (int64_t length = 1; length < 80; length += 5) {
    const auto seed = static_cast<uint64_t>(10 * length);
    TaskItem copa{.task = "copa", .gold = length % 2};
    TaskItem mmlu{.task = "mmlu", .gold = length % 4};
    const std::vector<int32_t> context = Ids(length, seed);
    for (uint64_t choice = 0; choice < 2; ++choice) {
      copa.choices.push_back({Ids(length, seed + 1 + choice), Ids(3, seed + 3), 12});
    }
    for (int32_t choice = 0; choice < 4; ++choice) mmlu.choices.push_back({context, {choice}, 1});
    items.push_back(std::move(copa));
    items.push_back(std::move(mmlu));
    items.push_back({.task = "lambada", .gold = 0, .choices = {{context, Ids(2, seed + 5), 0}}});
  }
  return items;
}

// The definition: one choice at a time, without padding.
ChoiceScore Reference(const Decoder& decoder, const TaskChoice& choice) {
  std::vector<int64_t> all(choice.context.begin(), choice.context.end());
  all.insert(all.end(), choice.continuation.begin(), choice.continuation.end());
  const auto kept = std::min<int64_t>(std::ssize(all), decoder.config().context + 1);
  all.erase(all.begin(), all.end() - kept);
  all.pop_back();
  const at::Tensor tokens = at::tensor(all).unsqueeze(0);
  const at::Tensor logs = at::log_softmax(testing::Logits(decoder, tokens)[0], -1);
  ChoiceScore score{0, true};
  int64_t place = logs.size(0) - std::ssize(choice.continuation);
  for (const int32_t token : choice.continuation) {
    score.log_likelihood += logs[place][token].item<double>();
    score.greedy = score.greedy && logs[place].argmax().item<int64_t>() == token;
    ++place;
  }
  return score;
}

absl::StatusOr<std::vector<ItemScores>> Score(const Decoder& decoder,
                                              const std::vector<TaskItem>& items) {
  const std::vector<TaskBatch> batches = BatchTasks(items, decoder.config().context);
  std::vector<TokenStream> streams;
  for (const TaskBatch& batch : batches) {
    streams.push_back(TokenStream::Embed(decoder, batch.tokens, {}).value());
    for (int64_t index = 0; index < decoder.blocks(); ++index) {
      const DecoderBlock block = decoder.ReadBlock(index).value();
      const auto ignore = [](size_t, const at::Tensor&) { return absl::OkStatus(); };
      EXPECT_TRUE(streams.back().PassThrough(block, block.weights(), ignore, {}).ok());
    }
  }
  return ScoreChoices(items, batches, streams, decoder, decoder.ReadHead().value(), {});
}

TEST(BatchTasksTest, PadsOnTheRightAndKeepsTheLastTokens) {
  const std::vector<TaskItem> items = {
      {.task = "a", .gold = 0, .choices = {{{1, 2, 3}, {4, 5}, 2}, {{1}, {6}, 1}}},
      {.task = "b", .gold = 0, .choices = {{{1, 2, 3, 4, 5, 6, 7}, {8, 9}, 0}}},
  };
  const std::vector<TaskBatch> batches = BatchTasks(items, 6);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_TRUE(batches[0].tokens.equal(
      at::tensor(std::vector<int64_t>{1, 2, 3, 4, 0, 1, 0, 0, 0, 0}).view({2, 5})));
  const std::vector<TaskTarget>& targets = batches[0].targets;
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0].place, 2);
  EXPECT_EQ(targets[1].place, 3);
  EXPECT_EQ(targets[1].token, 5);
  EXPECT_EQ(targets[2].place, 4);
  EXPECT_EQ(targets[2].choice, 1u);
  // The last six of 1 to 8.
  EXPECT_TRUE(
      batches[1].tokens.equal(at::tensor(std::vector<int64_t>{3, 4, 5, 6, 7, 8, 0}).view({1, 7})));
  EXPECT_EQ(batches[1].targets[0].place, 4);
  EXPECT_EQ(batches[1].targets[0].item, 1u);
}

TEST(BatchTasksTest, ComputesTheSameInputOnce) {
  TaskItem item{.task = "mmlu", .gold = 0};
  for (int32_t answer = 0; answer < 4; ++answer) item.choices.push_back({{7, 8}, {answer}, 1});
  const std::vector<TaskBatch> batches = BatchTasks(std::vector<TaskItem>{item, item}, 64);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].tokens.size(0), 2);
  EXPECT_EQ(batches[0].targets.size(), 8u);
  EXPECT_EQ(batches[0].targets[3].place, 1);
  EXPECT_EQ(batches[0].targets[4].place, 5);
}

TEST(BatchTasksTest, PadsLittle) {
  for (int64_t length = 1; length <= 600; ++length) {
    const std::vector<TaskItem> items = {{"a", 0, {{Ids(length, 1), {1}, 0}}}};
    const int64_t row = BatchTasks(items, 2048)[0].tokens.size(1) - 1;
    EXPECT_GE(row, length);
    EXPECT_LE(row, std::max(length + 3, length * 9 / 8)) << length;
  }
}

TEST(ScoreChoicesTest, IsTheDefinition) {
  for (const char* model_type : {"llama", "gpt_neox"}) {
    const TinyCheckpoint tiny(model_type, "");
    std::vector<TaskItem> items = SomeItems();
    // One that greedy decoding gives.
    TaskChoice& choice = items[2].choices[0];
    for (int32_t token = 0; token < 37; ++token) {
      choice.continuation = {token};
      if (Reference(tiny.decoder, choice).greedy) break;
    }
    const auto scores = Score(tiny.decoder, items);
    ASSERT_TRUE(scores.ok()) << scores.status();
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t c = 0; c < items[i].choices.size(); ++c) {
        const ChoiceScore expected = Reference(tiny.decoder, items[i].choices[c]);
        EXPECT_NEAR((*scores)[i][c].log_likelihood, expected.log_likelihood, 1e-5) << i;
        EXPECT_EQ((*scores)[i][c].greedy, expected.greedy) << i;
      }
    }
    EXPECT_TRUE((*scores)[2][0].greedy);
    EXPECT_FALSE((*scores)[5][0].greedy);
  }
}

TEST(ScoreChoicesTest, NamesATaskThatIsNotFinite) {
  const TinyCheckpoint tiny;
  tiny.reader.tensor("lm_head.weight")[5].fill_(std::numeric_limits<float>::infinity());
  const absl::Status status = Score(tiny.decoder, SomeItems()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "a log-likelihood of task 'copa' is not finite");
}

TEST(MeasureCheckpointTasks, FillsInAccuracies) {
  TinyCheckpoint tiny;
  const auto without = tiny.Measure();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->tasks.empty());
  EXPECT_FALSE(without->probe_accuracy_ratio);
  tiny.data.tasks = SomeItems();
  const auto report = tiny.Measure();
  ASSERT_TRUE(report.ok()) << report.status();

  std::vector<ItemScores> expected;
  for (const TaskItem& item : tiny.data.tasks) {
    ItemScores& own = expected.emplace_back();
    for (const TaskChoice& choice : item.choices) own.push_back(Reference(tiny.decoder, choice));
  }
  const TaskScores scores = ScoreTasks(tiny.data.tasks, expected);
  ASSERT_EQ(report->tasks.size(), 6u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(report->tasks[i], scores.tasks[i]);
  EXPECT_EQ(report->tasks[5].metric, "perplexity");
  EXPECT_NEAR(*report->tasks[5].value / *scores.tasks[5].value, 1, 1e-5);
  EXPECT_EQ(report->probe_accuracy_ratio, scores.accuracy_ratio);
  EXPECT_EQ(report->probe_accuracy_stderr, scores.accuracy_stderr);
  EXPECT_EQ(report->probe_loss_nats, without->probe_loss_nats);

  for (size_t i = 0; i < report->quantization.size(); ++i) {
    QuantizationReport quantizer = report->quantization[i];
    ASSERT_EQ(quantizer.tasks.size(), 6u);
    EXPECT_EQ(quantizer.tasks[2].task, "mmlu");
    EXPECT_EQ(quantizer.tasks[2].examples, 16);
    EXPECT_NE(quantizer.tasks[5].value, report->tasks[5].value);
    ASSERT_TRUE(quantizer.accuracy_ratio && quantizer.accuracy_degradation_ratio);
    EXPECT_NEAR(*quantizer.accuracy_degradation_ratio,
                (*report->probe_accuracy_ratio - *quantizer.accuracy_ratio) /
                    (1 - *report->probe_accuracy_ratio),
                1e-12);
    EXPECT_TRUE(quantizer.accuracy_degradation_stderr);
    quantizer.tasks.clear();
    quantizer.accuracy_ratio.reset();
    quantizer.accuracy_degradation_ratio.reset();
    quantizer.accuracy_degradation_stderr.reset();
    EXPECT_EQ(quantizer, without->quantization[i]);  // nothing else depends on tasks
  }
}

TEST(MeasureCheckpointTasks, HoldTheBytesThatTheirCostSays) {
  TinyCheckpoint tiny;
  const CheckpointCost without = CostOf(tiny.decoder, tiny.data, tiny.options);
  tiny.data.tasks = SomeItems();
  const CheckpointCost cost = CostOf(tiny.decoder, tiny.data, tiny.options);
  EXPECT_GT(cost.bytes, without.bytes);
  const ExecutionContext context;
  const auto all = tiny.Measure(context);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_LE(context.bytes->peak(), cost.bytes);
  EXPECT_GE(context.bytes->peak(), cost.bytes * 9 / 10);
  EXPECT_EQ(context.bytes->used(), 0);
  tiny.options.max_bytes = BytesOf(tiny.decoder, tiny.data, tiny.options).Peak(2);
  const auto few = tiny.Measure();
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->tasks, all->tasks);
  EXPECT_EQ(few->quantization, all->quantization);
}

TEST(MeasureCheckpointTasks, RefusesTokensOfAnotherModel) {
  const auto message = [](const TaskChoice& choice) {
    TinyCheckpoint tiny;
    tiny.data.tasks = SomeItems();
    tiny.data.tasks[1].choices[2] = choice;
    const absl::Status status = tiny.Measure().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message({{1}, {37}, 1}),
            "task 'mmlu', item 1 of the file, choice 2: token 37; the vocabulary has 37 tokens");
  EXPECT_THAT(message({{-1}, {3}, 1}), HasSubstr("token -1"));
  EXPECT_THAT(message({{}, {3}, 1}), HasSubstr("at least one token"));
  EXPECT_THAT(message({{1}, Ids(65, 1), 1}),
              HasSubstr("the continuation has 65 tokens; the model's context is 64"));
}

}  // namespace task_batches_test
}  // namespace ptqwatch::internal
