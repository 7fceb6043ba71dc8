#ifndef PTQWATCH_TESTS_UNIT_PROBES_AVERAGING_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_PROBES_AVERAGING_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {

/// A run of a small net, whose weights the test changes from snapshot to snapshot.
class AveragingTest : public ::testing::Test {
 protected:
  using Net = testing::TanhNet;
  using Weights = std::vector<at::Tensor>;

  AveragingTest() {
    net_.options.curvature.enabled = false;
    net_.options.averaging.window = 3;
    net_.options.relative_stderr = net_.options.absolute_stderr_ratio = 1e-9;  // all tokens
    net_.options.averaging.merges = false;
  }
  void Open() {
    auto suite = net_.Measure();
    ASSERT_TRUE(suite.ok()) << suite.status();
    suite_ = *std::move(suite);
  }
  // Other weights at every step, not on a line.
  Weights WeightsAt(int64_t step) const {
    Weights weights;
    for (size_t i = 0; i < original_.size(); ++i) {
      weights.push_back(original_[i] + testing::Waves(original_[i].sizes().vec(), 0.1,
                                                      100 * step + static_cast<int64_t>(i)));
    }
    return weights;
  }
  void Train(const Weights& weights) {
    for (size_t i = 0; i < weights.size(); ++i) net_.live[i].tensor.copy_(weights[i]);
  }
  Report Snapshot(int64_t step, ReportHeader header = {}) {
    Train(WeightsAt(step));
    return MeasureLoaded(step, std::move(header));
  }
  Report MeasureLoaded(int64_t step, ReportHeader header = {}) {
    net_.Load(*suite_);
    header.snapshot.info.step = step;
    return testing::MeasureReport(*suite_, nullptr, header);
  }
  // The report of a monitor that starts with these weights.
  Report Alone(const Weights& weights) {
    Net other;
    for (size_t i = 0; i < weights.size(); ++i) other.live[i].tensor.copy_(weights[i]);
    other.options = net_.options;
    other.options.averaging.enabled = false;
    auto suite = other.Measure();
    EXPECT_TRUE(suite.ok()) << suite.status();
    return suite.ok() ? Net::Run(**suite) : Report();
  }
  // The average that the last of five snapshots reports within a budget.
  AveragingReport LastOfFive(const std::shared_ptr<ByteBudget>& bytes) {
    ExecutionContext context;
    context.bytes = bytes;
    Net other;
    other.subject = other.MakeSubject();
    other.table = *MakeTensorTable(other.subject->LiveTensors());
    auto session = ModelSession::Open(*other.subject, SessionOptions(net_.options));
    EXPECT_TRUE(session.ok()) << session.status();
    auto suite = ProbeSuite::Create(*std::move(session), net_.options, {}, context);
    EXPECT_TRUE(suite.ok()) << suite.status();
    Report report;
    for (int64_t step = 1; step <= 5; ++step) {
      const Weights weights = WeightsAt(step);
      for (size_t i = 0; i < weights.size(); ++i) other.live[i].tensor.copy_(weights[i]);
      other.Load(**suite);
      const auto measured = (*suite)->Measure({.step = step}, {}, {}, context);
      EXPECT_TRUE(measured.ok()) << measured.status();
      report = AssembleReport({}, measured->results);
      for (const QuantizationReport& entry : report.quantization) {
        EXPECT_EQ(entry.status, ProbeStatus::kOk) << entry.status_detail;
      }
    }
    EXPECT_EQ(report.averaging.size(), 1u);
    return report.averaging.empty() ? AveragingReport() : report.averaging[0];
  }
  // The mean, by a loop of its own.
  static Weights MeanOfAll(const std::vector<Weights>& snapshots) {
    Weights means;
    for (size_t i = 0; i < snapshots[0].size(); ++i) {
      at::Tensor mean = snapshots[0][i].clone();
      float* out = mean.mutable_data_ptr<float>();
      for (int64_t k = 0; k < mean.numel(); ++k) {
        double sum = 0;
        for (const Weights& weights : snapshots) sum += weights[i].const_data_ptr<float>()[k];
        out[k] = static_cast<float>(sum / static_cast<double>(snapshots.size()));
      }
      means.push_back(mean);
    }
    return means;
  }
  // But for the comparison with the snapshot's own weights.
  static void ExpectSame(const AveragingReport& average, const Report& alone) {
    EXPECT_EQ(average.status, ProbeStatus::kOk) << average.status_detail;
    EXPECT_EQ(average.loss_nats, alone.probe_loss_nats);
    EXPECT_EQ(average.loss_stderr_nats, alone.probe_loss_stderr_nats);
    EXPECT_EQ(average.probe_tokens, alone.probe_tokens);
    ASSERT_EQ(average.quantization.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      QuantizationReport entry = average.quantization[i];
      EXPECT_TRUE(entry.change_nats && entry.change_stderr_nats);
      entry.change_nats = entry.change_stderr_nats = std::nullopt;
      EXPECT_TRUE(entry == alone.quantization.at(1 - i));  // the watched one is first
    }
  }

  Net net_;
  const Weights original_ = [this] {
    Weights weights;
    for (const NamedTensor& named : net_.live) weights.push_back(named.tensor.clone());
    return weights;
  }();
  std::unique_ptr<ProbeSuite> suite_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TESTS_UNIT_PROBES_AVERAGING_FIXTURE_H_
