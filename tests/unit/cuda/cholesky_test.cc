#include "quantize/kernels/cholesky.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "cuda/cholesky_steps.h"
#include "support/device_run.h"
#include "unit/quantize/reference.h"

namespace ptqwatch::internal {
namespace cholesky_test {

using testing::CorrelatedInputs;
using testing::Matrix;

struct Factored {
  int32_t info = -1;
  std::vector<double> upper;  // column-major
};

Factored Factorize(ComputeDevice& device, const std::vector<double>& matrix, int64_t size) {
  ArenaScope scope(device.arena());
  Factored result;
  result.upper.resize(matrix.size());
  const int64_t bytes = 8 * size * size;
  const ExecutionContext context;
  Queue queue(device, context);
  Cholesky cholesky;
  const auto run = [&]() -> absl::Status {
    PTQWATCH_ASSIGN_OR_RETURN(double* const on_device,
                              device.arena().TakeArray<double>(size * size, "a matrix"));
    PTQWATCH_ASSIGN_OR_RETURN(int32_t* const info,
                              device.arena().TakeArray<int32_t>(1, "a number"));
    PTQWATCH_RETURN_IF_ERROR(cholesky.Take(device.arena(), size));
    PTQWATCH_RETURN_IF_ERROR(device.Upload(on_device, matrix.data(), bytes));
    PTQWATCH_RETURN_IF_ERROR(cholesky.Factorize(on_device, info, queue));
    const HostCopy copies[] = {{.host = result.upper.data(), .from = on_device, .bytes = bytes},
                               {.host = &result.info, .from = info, .bytes = 4}};
    return device.Read(copies);
  };
  const absl::Status status = run();
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

// Second moments of correlated inputs, a little damped.
std::vector<double> PositiveMatrix(int64_t size) {
  std::vector<double> sum = testing::Gram(CorrelatedInputs(2 * size + 8, size, 1)).sum;
  double trace = 0;
  for (int64_t i = 0; i < size; ++i) trace += sum[static_cast<size_t>(i * (size + 1))];
  for (int64_t i = 0; i < size; ++i) {
    sum[static_cast<size_t>(i * (size + 1))] += 1e-2 * trace / static_cast<double>(size);
  }
  return sum;
}

constexpr int64_t kSizes[] = {1, 7, 8, 9, 127, 128, 129, 300, 511, 512, 513, 700};

TEST(Cholesky, AgreesWithTheHostsFactor) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const int64_t size : kSizes) {
    SCOPED_TRACE(size);
    std::vector<double> matrix = PositiveMatrix(size);
    // R of the matrix in reverse order is U^T in reverse order.
    std::vector<int64_t> order(static_cast<size_t>(size));
    std::iota(order.rbegin(), order.rend(), int64_t{0});
    std::vector<double> diagonal;
    for (int64_t i = 0; i < size; ++i)
      diagonal.push_back(matrix[static_cast<size_t>(i * (size + 1))]);
    const absl::StatusOr<UpperFactor> expected = FactorizeUpper(
        {.values = matrix.data(), .size = size, .order = order.data(), .diagonal = diagonal.data()},
        {});
    ASSERT_TRUE(expected.ok()) << expected.status();
    // Only the upper triangle may be read.
    for (int64_t column = 0; column < size; ++column) {
      for (int64_t row = column + 1; row < size; ++row) {
        matrix[static_cast<size_t>(column * size + row)] = std::nan("");
      }
    }
    const Factored got = Factorize(*device, matrix, size);
    EXPECT_EQ(got.info, 0);
    for (int64_t column = 0; column < size; ++column) {
      const double norm = std::sqrt(diagonal[static_cast<size_t>(column)]);
      for (int64_t row = 0; row <= column; ++row) {
        ASSERT_NEAR(got.upper[static_cast<size_t>(column * size + row)],
                    expected->At(size - 1 - column, size - 1 - row), 1e-12 * norm)
            << row << " " << column;
      }
    }
  }
}

TEST(Cholesky, NamesTheFirstPivotThatIsNotPositive) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  constexpr int64_t kSize = 531;
  const double bad[] = {-1.0, 0.0, std::nan(""), std::numeric_limits<double>::infinity()};
  size_t next = 0;
  for (const int64_t at : {0, 1, 8, 127, 128, 300, 512, 530}) {
    const double value = bad[next++ % std::size(bad)];
    std::vector<double> matrix = PositiveMatrix(kSize);
    matrix[static_cast<size_t>(at * (kSize + 1))] = value;
    EXPECT_EQ(Factorize(*device, matrix, kSize).info, at + 1) << value;
  }
}

TEST(Cholesky, ReportsANaNBesideTheDiagonal) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  constexpr int64_t kSize = 200;
  std::vector<double> matrix = PositiveMatrix(kSize);
  matrix[static_cast<size_t>(150 * kSize + 3)] = std::nan("");
  EXPECT_EQ(Factorize(*device, matrix, kSize).info, 151);
}

}  // namespace cholesky_test
}  // namespace ptqwatch::internal
