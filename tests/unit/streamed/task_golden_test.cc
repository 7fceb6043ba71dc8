// Compares with lm-eval on a tiny model (tests/data/tasks/generate).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/checkpoint_files.h"
#include "models/checkpoint_reader.h"
#include "streamed/measure_checkpoint.h"
#include "streamed/task_batches.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace task_golden_test {

using nlohmann::json;

constexpr char kFolder[] = PTQWATCH_TASK_DATA;

class TaskGoldenTest : public ::testing::Test {
 protected:
  TaskGoldenTest()
      : reader_(CheckpointFiles::Open(kFolder).value()),
        decoder_(Decoder::Create(reader_.files().config(), reader_).value()),
        items_(ReadTaskFile(std::string(kFolder) + "/tasks.jsonl", decoder_.config().vocabulary,
                            decoder_.config().context)
                   .value()),
        golden_(json::parse(std::ifstream(std::string(kFolder) + "/lm_eval.json"))) {}

  const CheckpointReader reader_;
  const Decoder decoder_;
  const std::vector<TaskItem> items_;
  const json golden_;
};

TEST_F(TaskGoldenTest, MetricsAreThoseOfLmEval) {
  TrajectoryData data;
  data.probe = testing::RandomTokens(4, 33, decoder_.config().vocabulary, 1);
  data.calibration = testing::RandomTokens(4, 33, decoder_.config().vocabulary, 2);
  data.tasks = items_;
  CheckpointMeasurement options;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 16}};
  options.curvature.enabled = false;
  options.max_bytes = int64_t{1} << 30;
  const absl::StatusOr<Report> report = MeasureCheckpoint(decoder_, data, options, {});
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->tasks.size(), 8u);
  int compared = 0;
  for (const TaskReport& task : report->tasks) {
    SCOPED_TRACE(task.task + " " + task.metric);
    const json& results = golden_.at("results").at(task.task);
    if (!results.contains(task.metric)) continue;  // not a metric of this task
    ++compared;
    const double value = results.at(task.metric);
    EXPECT_NEAR(*task.value, value, 1e-6 * std::max(1.0, value));
    if (!results.contains(task.metric + "_stderr")) continue;
    EXPECT_NEAR(*task.value_stderr, results.at(task.metric + "_stderr").get<double>(), 1e-6);
  }
  EXPECT_EQ(compared, 7);
  EXPECT_EQ(report->quantization[0].status, ProbeStatus::kOk);
  EXPECT_EQ(report->quantization[0].tasks.size(), 8u);
}

TEST_F(TaskGoldenTest, LogLikelihoodsAreThoseOfLmEval) {
  const std::vector<TaskBatch> batches = BatchTasks(items_, decoder_.config().context);
  std::vector<TokenStream> streams;
  const auto ignore = [](size_t, const at::Tensor&) { return absl::OkStatus(); };
  for (const TaskBatch& batch : batches) {
    streams.push_back(TokenStream::Embed(decoder_, batch.tokens, {}).value());
    for (int64_t index = 0; index < decoder_.blocks(); ++index) {
      const DecoderBlock block = decoder_.ReadBlock(index).value();
      ASSERT_TRUE(streams.back().PassThrough(block, block.weights(), ignore, {}).ok());
    }
  }
  const auto scores =
      ScoreChoices(items_, batches, streams, decoder_, decoder_.ReadHead().value(), {});
  ASSERT_TRUE(scores.ok()) << scores.status();
  std::map<std::string, size_t> seen;
  int greedy = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t document = seen[items_[i].task]++;
    SCOPED_TRACE(items_[i].task + " " + std::to_string(document));
    const json& sums = golden_.at("log_likelihoods").at(items_[i].task).at(document);
    const json& is_greedy = golden_.at("greedy").at(items_[i].task).at(document);
    ASSERT_EQ(sums.size(), items_[i].choices.size());
    for (size_t c = 0; c < sums.size(); ++c) {
      const double sum = sums.at(c);
      EXPECT_NEAR((*scores)[i][c].log_likelihood, sum, 1e-6 * std::max(1.0, std::abs(sum)));
      EXPECT_EQ((*scores)[i][c].greedy, is_greedy.at(c).get<bool>());
      greedy += (*scores)[i][c].greedy ? 1 : 0;
    }
  }
  EXPECT_GT(greedy, 0);
}

}  // namespace task_golden_test
}  // namespace ptqwatch::internal
