// How long OnStep takes, and what gaps it leaves between a trainer's kernels of 20 us: with and
// without a monitor, with idle cores and with busy ones. Skipped without a GPU.
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "cuda/gpu_trainer.h"
#include "cuda/spin.h"

namespace ptqwatch::testing {
namespace {

constexpr int kSteps = 1000;
constexpr int kKernels = 20;
constexpr int64_t kKernelNanoseconds = 20'000;

// A thread that computes on every core, until the end of the scope.
class BusyCores {
 public:
  explicit BusyCores(bool busy) {
    for (unsigned i = 0; busy && i < std::thread::hardware_concurrency(); ++i) {
      threads_.emplace_back([this] {
        while (!stop_) {
        }
      });
    }
  }
  ~BusyCores() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

struct Times {
  std::vector<double> on_step;  // microseconds of the host
  std::vector<double> gaps;     // microseconds between two steps' kernels on the device
  double whole = 0;             // seconds of the device
};

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

float Milliseconds(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  return milliseconds;
}

Times Train(GpuTrainer& trainer, int64_t first_step) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  std::vector<cudaEvent_t> begins(kSteps);
  std::vector<cudaEvent_t> ends(kSteps);
  Times times;
  for (size_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(cudaEventCreate(&begins[i]), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&ends[i]), cudaSuccess);
  }
  for (size_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(cudaEventRecord(begins[i], stream), cudaSuccess);
    for (int kernel = 0; kernel < kKernels; ++kernel) {
      EXPECT_EQ(QueueSpin(stream, kKernelNanoseconds), cudaSuccess);
    }
    EXPECT_EQ(cudaEventRecord(ends[i], stream), cudaSuccess);
    const auto begin = std::chrono::steady_clock::now();
    if (trainer.monitor) {
      trainer.monitor->OnStep({.step = first_step + static_cast<int64_t>(i)});
    }
    times.on_step.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (size_t i = 1; i < kSteps; ++i) {
    times.gaps.push_back(1e3 * static_cast<double>(Milliseconds(ends[i - 1], begins[i])));
  }
  times.whole = 1e-3 * static_cast<double>(Milliseconds(begins.front(), ends.back()));
  for (size_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(cudaEventDestroy(begins[i]), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(ends[i]), cudaSuccess);
  }
  return times;
}

void Print(const char* monitor, const char* cores, const Times& times) {
  std::printf("| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.3f |\n", monitor, cores,
              Quantile(times.on_step, 0.5), Quantile(times.on_step, 0.99),
              Quantile(times.on_step, 1), Quantile(times.gaps, 0.5), Quantile(times.gaps, 0.99),
              Quantile(times.gaps, 1), times.whole);
}

TEST(Stall, OnStepLeavesATrainersKernelsTogether) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  std::puts("| monitor | cores | OnStep p50 us | p99 | max | gaps p50 us | p99 | max | seconds |");
  std::puts("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  GpuTrainer off;
  Train(off, 1);  // loads the kernel
  GpuTrainer on;
  MonitorOptions options;
  options.schedule.every = 100;
  options.monitor_device = "trainer";
  on.Watch(options);
  Train(on, 1);  // the first snapshots make buffers
  int64_t step = kSteps + 1;
  for (const bool busy : {false, true}) {
    const BusyCores cores(busy);
    const char* name = busy ? "busy" : "idle";
    const Times alone = Train(off, 1);
    Print("off", name, alone);
    const Times watched = Train(on, step);
    Print("on", name, watched);
    step += kSteps;
    if (!busy) {
      EXPECT_LT(watched.whole, 1.05 * alone.whole);
    }
  }
  EXPECT_TRUE(on.monitor->Finish(std::chrono::seconds(30)).ok());
  EXPECT_FALSE(on.recording->Reports().empty());
}

}  // namespace
}  // namespace ptqwatch::testing
