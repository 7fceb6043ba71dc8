#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cuda/trace_steps.h"
#include "support/device_run.h"
#include "unit/quantize/reference.h"

namespace ptqwatch::internal {
namespace trace_test {

using testing::CorrelatedInputs;
using testing::DeviceRun;
using testing::Matrix;
using testing::RandomMatrix;

struct Trace {
  double value = 0;
  double magnitude = 0;
};

// With the sum of all |x_i S_ij x_j|.
Trace Exact(const Matrix& x, const GramStatistics& statistics) {
  Trace trace;
  const size_t cols = static_cast<size_t>(x.cols);
  for (int64_t row = 0; row < x.rows; ++row) {
    const float* values = x.values.data() + row * x.cols;
    for (size_t i = 0; i < cols; ++i) {
      const double* sums = statistics.sum.data() + i * cols;
      double dot = 0;
      double magnitude = 0;
      for (size_t j = 0; j < cols; ++j) {
        const double term = sums[j] * static_cast<double>(values[j]);
        dot += term;
        magnitude += std::abs(term);
      }
      trace.value += static_cast<double>(values[i]) * dot;
      trace.magnitude += std::abs(static_cast<double>(values[i])) * magnitude;
    }
  }
  return trace;
}

Trace OnDevice(ComputeDevice& device, const Matrix& x, const GramStatistics& statistics,
               Precision precision) {
  DeviceRun run(device);
  Trace result;
  const auto measure = [&]() -> absl::Status {
    LayerGroup group;
    group.layers = group.inputs = 1;
    group.rows = x.rows;
    group.cols = x.cols;
    group.attempt.energy = precision;
    group.sum.at[0] = run.Gram(statistics)->moments().sum;
    PTQWATCH_ASSIGN_OR_RETURN(group.numbers.at[0],
                              device.arena().TakeArray<double>(kNumberCount, "numbers"));
    Tracer tracer(group);
    PTQWATCH_RETURN_IF_ERROR(tracer.Take(device.arena()));
    PTQWATCH_RETURN_IF_ERROR(device.Upload(tracer.x().first, x.values.data(), 4 * group.size()));
    const ExecutionContext context;
    Queue queue(device, context);
    PTQWATCH_RETURN_IF_ERROR(tracer.Prepare(queue));
    PTQWATCH_RETURN_IF_ERROR(tracer.Run(queue, precision, kEnergy));
    const HostCopy copy{.host = &result, .from = group.numbers.at[0] + kEnergy, .bytes = 16};
    return device.Read({&copy, 1});
  };
  const absl::Status status = measure();
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

TEST(Tracer, IsWithinTheErrorThatItStates) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const int64_t cols : {1, 9, 257, 1100}) {
    const Matrix x = RandomMatrix(20, cols, 2);
    const GramStatistics statistics = testing::Gram(CorrelatedInputs(cols + 40, cols, 1));
    const Trace exact = Exact(x, statistics);
    for (const Precision precision : {Precision::kFloat32, Precision::kFloat64}) {
      const Trace got = OnDevice(*device, x, statistics, precision);
      const double bound = precision == Precision::kFloat64
                               ? 1e-13
                               : 3 * 0x1p-16 + static_cast<double>(cols) * 0x1p-27;
      EXPECT_NEAR(got.value, exact.value, bound * exact.magnitude) << cols;
      // The errors of many numbers average out.
      if (cols > 256) {
        EXPECT_NEAR(got.value, exact.value, 1e-6 * exact.magnitude) << cols;
      }
    }
  }
}

}  // namespace trace_test
}  // namespace ptqwatch::internal
