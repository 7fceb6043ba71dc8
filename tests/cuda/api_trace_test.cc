// The calls of CUDA's API that a monitor makes beside a trainer. Skipped without a GPU.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>

#include <thread>

#include "cuda/api_recorder.h"
#include "cuda/gpu_trainer.h"
#include "support/temp_dir.h"

namespace ptqwatch::testing {
namespace {

using ::testing::IsEmpty;

struct ApiTrace : ::testing::Test {
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
    trainer = std::make_unique<GpuTrainer>();
    trainer->Step(1);  // loads what a trainer needs
    MonitorOptions options;
    options.schedule.every = 5;
    options.monitor_device = "trainer";
    options.run_dir = directory.path();
    trainer->Watch(options);
    auto started = ApiRecorder::Start();
    ASSERT_TRUE(started.ok()) << started.status();
    recorder = *std::move(started);
  }

  // Trains until there are so many reports in all.
  void TrainUntil(size_t reports) {
    while (trainer->recording->Reports().size() < reports) trainer->Step(++step);
  }
  // Finish then has no snapshot to take, which it could not inside a capture.
  void TrainUntilTheLastStepIsReported() {
    do {
      do trainer->Step(++step);
      while (step % 5 != 0);
      const MonitorStatus status = trainer->monitor->status();
      const int64_t taken = status.snapshots[static_cast<size_t>(SnapshotResult::kTaken)];
      while (trainer->monitor->status().reports_total < taken) std::this_thread::yield();
    } while (trainer->recording->Reports().empty() ||
             trainer->recording->Reports().back()->report.step != step);
  }
  void ExpectOutOfTheWay() const {
    EXPECT_THAT(Violations(recorder->Calls(), ThreadName()), IsEmpty());
    EXPECT_FALSE(recorder->Calls().empty());
  }

  TempDir directory;
  std::unique_ptr<GpuTrainer> trainer;
  std::unique_ptr<ApiRecorder> recorder;
  int64_t step = 1;
};

TEST_F(ApiTrace, AMonitorStaysOutOfItsTrainersWay) {
  TrainUntil(8);  // as many as averages are made of, and two more
  recorder->Mark(ApiEffect::kSteady);
  TrainUntil(12);
  ExpectOutOfTheWay();
}

TEST_F(ApiTrace, StopSynchronisesNothing) {
  TrainUntil(2);
  recorder->Mark(ApiEffect::kQuiet);
  EXPECT_TRUE(trainer->monitor->Stop(std::chrono::seconds(5)).ok());
  recorder->Mark(ApiEffect::kQuietEnd);
  trainer->Step(++step);
  ExpectOutOfTheWay();
}

// Whatever the monitor does at its end, the state it writes included, while a graph is captured on
// a stream that waits for the default one.
TEST_F(ApiTrace, ACaptureSurvivesAStateWriteAndStop) {
  TrainUntilTheLastStepIsReported();
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const at::Tensor x = torch::ones({256, 256}, torch::kCUDA);
  torch::cuda::synchronize();
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(blocking, 0));
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    const at::Tensor y = at::mm(x, x);
    EXPECT_TRUE(trainer->monitor->Finish(std::chrono::minutes(2)).ok());
    EXPECT_TRUE(trainer->monitor->Stop(std::chrono::seconds(5)).ok());
    ASSERT_NO_THROW(graph.capture_end());
    graph.replay();
    EXPECT_EQ(y[0][0].item<double>(), 256);
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  ExpectOutOfTheWay();
}

}  // namespace
}  // namespace ptqwatch::testing
