#include "cuda/device_gram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/device_run.h"
#include "unit/quantize/reference.h"

namespace ptqwatch {
namespace device_gram_test {

using internal::ComputeDevice;
using internal::DeviceGram;
using internal::DeviceRows;
using internal::RowType;
using testing::CorrelatedInputs;
using testing::DeviceRun;
using ::testing::HasSubstr;
using testing::Matrix;
using testing::NaiveGram;
using testing::RoundedTo;

constexpr RowType kTypes[] = {RowType::kFloat32, RowType::kBFloat16, RowType::kFloat16};

// Relative to the product of two columns' norms.
double LargestError(const GramStatistics& got, const GramStatistics& expected) {
  double worst = 0;
  const size_t d = static_cast<size_t>(expected.inputs);
  for (size_t i = 0; i < d; ++i) {
    for (size_t j = 0; j < d; ++j) {
      const double norms = expected.sum[i * d + i] * expected.sum[j * d + j];
      const double error = std::abs(got.sum[i * d + j] - expected.sum[i * d + j]);
      if (norms > 0) worst = std::max(worst, error / std::sqrt(norms));
      EXPECT_EQ(got.sum[i * d + j], got.sum[j * d + i]);
    }
  }
  return worst;
}

void ExpectGram(const GramStatistics& got, const GramStatistics& expected, double tolerance) {
  EXPECT_EQ(got.inputs, expected.inputs);
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.skipped_rows, expected.skipped_rows);
  EXPECT_EQ(got.abs_max, expected.abs_max);
  for (size_t c = 0; c < got.abs_sum.size(); ++c) {
    EXPECT_NEAR(got.abs_sum[c], expected.abs_sum[c], 1e-12 * expected.abs_sum[c]);
  }
  EXPECT_LE(LargestError(got, expected), tolerance);
}

TEST(DeviceGram, AgreesWithTheDefinition) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  struct Case {
    int64_t rows;
    int64_t cols;
    double tolerance;
  };
  for (const Case& one : {Case{1, 1, 1e-15}, Case{7, 5, 1e-14}, Case{130, 256, 1e-14},
                          Case{300, 257, 1e-5}, Case{40, 600, 1e-5}, Case{1111, 264, 1e-5}}) {
    for (const RowType type : kTypes) {
      SCOPED_TRACE(one.cols);
      const Matrix x = RoundedTo(type, CorrelatedInputs(one.rows, one.cols, 1));
      DeviceRun run(*device);
      const absl::StatusOr<GramStatistics> got = run.Gram(x, type)->CopyToHost();
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectGram(*got, testing::Gram(x), one.tolerance);
    }
  }
}

// Enough rows for slices, and one that is left over; two panels.
TEST(DeviceGram, AddsUpSlices) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const RowType type : {RowType::kFloat32, RowType::kBFloat16}) {
    const int64_t cols = type == RowType::kFloat32 ? 260 : 520;
    const Matrix x = RoundedTo(type, CorrelatedInputs(1025, cols, 14));
    DeviceRun run(*device);
    const absl::StatusOr<GramStatistics> got = run.Gram(x, type)->CopyToHost();
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectGram(*got, testing::Gram(x), 1e-5);
  }
}

TEST(DeviceGram, AddsUpChunksAndReadsStridedRows) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  constexpr int64_t kRows = 8192 + 1024 + 77;
  constexpr int64_t kCols = 9;
  const Matrix x = CorrelatedInputs(kRows, kCols, 2);
  Matrix wide(kRows, 13);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) wide.at(r, c) = x.at(r, c);
    wide.at(r, kCols) = std::numeric_limits<float>::quiet_NaN();
  }
  DeviceRun run(*device);
  DeviceRows rows = run.UploadRows(wide, RowType::kFloat32);
  rows.cols = kCols;
  absl::StatusOr<DeviceGram> gram = DeviceGram::Create(*device, kCols);
  ASSERT_TRUE(gram.ok());
  ASSERT_TRUE(gram->Add(rows).ok());
  rows.rows = 3;
  ASSERT_TRUE(gram->Add(rows).ok());
  ASSERT_TRUE(gram->Finish().ok());
  EXPECT_EQ(gram->rows(), kRows + 3);
  GramAccumulator expected(kCols);
  ASSERT_TRUE(expected.Add(x.view()).ok());
  ASSERT_TRUE(expected.Add({.data = x.values.data(), .rows = 3, .cols = kCols}).ok());
  const absl::StatusOr<GramStatistics> got = gram->CopyToHost();
  ASSERT_TRUE(got.ok());
  ExpectGram(*got, expected.Take(), 1e-13);
}

TEST(DeviceGram, LeavesOutRowsThatAreNotFinite) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const RowType type : kTypes) {
    for (const int64_t cols : {6, 300, 304}) {
      Matrix x = RoundedTo(type, CorrelatedInputs(50, cols, 3));
      x.at(0, cols - 1) = std::numeric_limits<float>::infinity();
      x.at(17, 2) = std::numeric_limits<float>::quiet_NaN();
      x.at(49, 0) = -std::numeric_limits<float>::infinity();
      DeviceRun run(*device);
      const absl::StatusOr<GramStatistics> got = run.Gram(x, type)->CopyToHost();
      ASSERT_TRUE(got.ok());
      EXPECT_EQ(got->skipped_rows, 3);
      ExpectGram(*got, testing::Gram(x), 1e-5);
    }
  }
}

// In place there are two slices of 512 rows, and one row that is left over for the first.
TEST(DeviceGram, SumsSlicesAgainWithoutRowsThatAreNotFinite) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  constexpr int64_t kRows = 1025;
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), int64_t{0});
  struct Case {
    RowType type;
    int64_t cols;
    std::vector<int64_t> bad;
  };
  for (const Case& one :
       {Case{RowType::kBFloat16, 264, {0, 511}}, Case{RowType::kFloat16, 264, {1023, 700}},
        Case{RowType::kBFloat16, 264, {1024}}, Case{RowType::kBFloat16, 264, all},
        // In two panels.
        Case{RowType::kBFloat16, 520, {1024, 600}}}) {
    SCOPED_TRACE(one.bad.front());
    Matrix x = RoundedTo(one.type, CorrelatedInputs(kRows, one.cols, 15));
    for (const int64_t row : one.bad) x.at(row, row % one.cols) = std::nanf("");
    DeviceRun run(*device);
    const absl::StatusOr<GramStatistics> got = run.Gram(x, one.type)->CopyToHost();
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectGram(*got, testing::Gram(x), 1e-5);
  }
}

// Memory for a copy of the rows is missing.
TEST(DeviceGram, ReadsShortRowsInPlace) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  constexpr int64_t kRows = 600;
  constexpr int64_t kCols = 264;
  constexpr int64_t kStride = 280;
  for (const RowType type : {RowType::kBFloat16, RowType::kFloat16}) {
    const Matrix x = RoundedTo(type, CorrelatedInputs(kRows, kCols, 16));
    Matrix wide(kRows + 1, kStride);
    wide.values.assign(wide.values.size(), std::numeric_limits<float>::quiet_NaN());
    // Begins at a multiple of 16 bytes, and with one number more does not.
    for (const int64_t offset : {0, 8, 9}) {
      Matrix source = wide;
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < kCols; ++c) source.at(r, offset + c) = x.at(r, c);
      }
      DeviceRun run(*device);
      DeviceRows rows = run.UploadRows(source, type);
      rows.data = static_cast<const uint16_t*>(rows.data) + offset;
      rows.rows = kRows;
      rows.cols = kCols;
      absl::StatusOr<DeviceGram> gram = DeviceGram::Create(*device, kCols);
      ASSERT_TRUE(gram.ok()) << gram.status();
      internal::Arena& arena = device->arena();
      internal::ArenaScope scope(arena);
      const int64_t need = DeviceGram::WorkingBytes(kCols, kRows, type);
      const int64_t given = offset == 9 ? need : need - 2 * kRows * kCols + 256;
      ASSERT_TRUE(arena.Take((arena.remaining() - given) / 256 * 256, "filler").ok());
      const absl::Status added = gram->Add(rows);
      ASSERT_TRUE(added.ok()) << offset << ": " << added;
      ASSERT_TRUE(gram->Finish().ok());
      const absl::StatusOr<GramStatistics> got = gram->CopyToHost();
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectGram(*got, testing::Gram(x), 1e-5);
    }
  }
}

void ExpectWithinBound(const Matrix& x, const GramStatistics& got) {
  const GramStatistics exact = NaiveGram(x);
  Matrix magnitudes = x;
  for (float& value : magnitudes.values) value = std::abs(value);
  const GramStatistics most = NaiveGram(magnitudes);
  for (size_t i = 0; i < exact.sum.size(); ++i) {
    ASSERT_LE(std::abs(got.sum[i] - exact.sum[i]), std::ldexp(most.sum[i], -13)) << i;
  }
}

// Against float64 sums. Positive numbers, whose errors do not average out: the matrix units of
// HostDevice truncate.
TEST(DeviceGram, ErrorsAreWithinTheStatedBound) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const RowType type : kTypes) {
    Matrix x = CorrelatedInputs(700, 264, 17);
    for (float& value : x.values) value = std::abs(value);
    x = RoundedTo(type, x);
    DeviceRun run(*device);
    const absl::StatusOr<GramStatistics> got = run.Gram(x, type)->CopyToHost();
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectWithinBound(x, *got);
  }
}

// More rows than are added to the float64 sums at once, and some that are not finite in both parts.
TEST(DeviceGram, AddsUpChunksInPlace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "takes a minute";
#endif
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  Matrix x = RoundedTo(RowType::kBFloat16, CorrelatedInputs(32768 + 40, 264, 18));
  x.at(20000, 7) = std::numeric_limits<float>::infinity();
  x.at(32768 + 39, 0) = std::nanf("");
  DeviceRun run(*device);
  const absl::StatusOr<GramStatistics> got = run.Gram(x, RowType::kBFloat16)->CopyToHost();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->skipped_rows, 2);
  ExpectGram(*got, testing::Gram(x), 2e-5);  // float32 sums of 4096 rows; an H200: 1.14e-5
}

TEST(DeviceGram, TakesExtremeNumbers) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  Matrix x(2, 300);
  x.at(0, 0) = std::numeric_limits<float>::max();
  x.at(1, 1) = std::numeric_limits<float>::denorm_min();
  x.at(1, 2) = -1e-18f;
  DeviceRun run(*device);
  const absl::StatusOr<GramStatistics> got = run.Gram(x)->CopyToHost();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tokens, 2);
  // Overflows as it does on the CPU.
  EXPECT_FALSE(std::isfinite(got->sum[0]));
  EXPECT_NEAR(got->sum[2 * 300 + 2], 1e-36, 1e-40);
  EXPECT_EQ(got->abs_max[0], std::numeric_limits<float>::max());
}

TEST(DeviceGram, HasTheSameBitsTwice) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  const Matrix x = CorrelatedInputs(400, 270, 4);
  DeviceRun run(*device);
  const absl::StatusOr<GramStatistics> first = run.Gram(x)->CopyToHost();
  const absl::StatusOr<GramStatistics> second = run.Gram(x)->CopyToHost();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->sum, second->sum);
  EXPECT_EQ(first->abs_sum, second->abs_sum);
}

TEST(DeviceGram, RefusesWhatDoesNotFit) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  EXPECT_EQ(DeviceGram::Create(*device, 0).status().code(), absl::StatusCode::kInvalidArgument);
  const int64_t before = device->arena().used();
  EXPECT_EQ(DeviceGram::Create(*device, 1 << 16).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device->arena().used(), before);

  absl::StatusOr<DeviceGram> gram = DeviceGram::Create(*device, 4);
  ASSERT_TRUE(gram.ok());
  EXPECT_EQ(device->arena().used() - before, DeviceGram::Bytes(4));
  const DeviceRows good = run.UploadRows(Matrix(3, 4), RowType::kFloat32);
  const auto refused = [&](DeviceRows rows) {
    const absl::Status status = gram->Add(rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  };
  DeviceRows rows = good;
  rows.cols = 3;
  refused(rows);
  rows = good;
  rows.rows = -1;
  refused(rows);
  rows = good;
  rows.stride = 3;
  refused(rows);
  rows = good;
  rows.data = nullptr;
  refused(rows);
  rows.rows = 0;
  EXPECT_TRUE(gram->Add(rows).ok());
  EXPECT_EQ(gram->CopyToHost().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(gram->Finish().ok());
  EXPECT_EQ(gram->Finish().code(), absl::StatusCode::kFailedPrecondition);
  refused(good);
  EXPECT_EQ(gram->CopyToHost()->tokens, 0);
}

TEST(DeviceGram, TakesMomentsFromTheHost) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  GramStatistics statistics = testing::Gram(CorrelatedInputs(20, 6, 5));
  statistics.skipped_rows = 3;
  DeviceRun run(*device);
  const absl::StatusOr<GramStatistics> back = run.Gram(statistics)->CopyToHost();
  ASSERT_TRUE(back.ok());
  ExpectGram(*back, statistics, 0);
  EXPECT_EQ(back->sum, statistics.sum);
  statistics.abs_max.pop_back();
  EXPECT_EQ(DeviceGram::FromHost(*device, statistics).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DeviceGram, SaysHowMuchMemoryItTakes) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  for (const RowType type : kTypes) {
    for (const int64_t cols : {5, 300}) {
      DeviceRun run(*device);
      const DeviceRows rows = run.UploadRows(Matrix(70, cols), type);
      absl::StatusOr<DeviceGram> gram = DeviceGram::Create(*device, cols);
      ASSERT_TRUE(gram.ok());
      internal::Arena& arena = device->arena();
      const int64_t used = arena.used();
      const int64_t need = DeviceGram::WorkingBytes(cols, 70, type);
      // Just enough memory, and then one byte less.
      for (const int64_t spare : {need, need - 1}) {
        internal::ArenaScope scope(arena);
        ASSERT_TRUE(arena.Take((arena.remaining() - spare) / 256 * 256, "filler").ok());
        const bool fits = arena.remaining() >= need;
        EXPECT_EQ(gram->Add(rows).ok(), fits) << spare;
      }
      EXPECT_EQ(arena.used(), used);
    }
  }
}

TEST(DeviceGram, StopsWhenCancelled) {
  const auto device = testing::MakeTestDevice();
  if (device == nullptr) return;
  DeviceRun run(*device);
  const DeviceRows rows = run.UploadRows(Matrix(3, 4), RowType::kFloat32);
  absl::StatusOr<DeviceGram> gram = DeviceGram::Create(*device, 4);
  ASSERT_TRUE(gram.ok());
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ(gram->Add(rows, context).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(gram->Finish(context).code(), absl::StatusCode::kCancelled);
}

}  // namespace device_gram_test
}  // namespace ptqwatch
