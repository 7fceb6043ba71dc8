#include "streamed/average_reader.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/weight_reader.h"
#include "snapshot/memory_meter.h"

namespace ptqwatch::internal {
namespace average_reader_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

MapReader ReaderOf(const at::Tensor& w) {
  return MapReader({{"bias", at::full({2}, 1.0f)}, {"w", w}});
}

TEST(AverageReader, SumsInFloat64AndRoundsOnce) {
  // In float32, 1e8 + 1 is 1e8 again.
  const MapReader a = ReaderOf(at::tensor({1e8f, 1.0f})), b = ReaderOf(at::tensor({1.0f, 2.0f})),
                  c = ReaderOf(at::tensor({-1e8f, 4.5f}));
  const auto mean = AverageReader::Create({{"a", &a}, {"b", &b}, {"c", &c}});
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_EQ(mean->Names(), (std::vector<std::string>{"bias", "w"}));
  EXPECT_EQ(*mean->Shape("w"), std::vector<int64_t>{2});
  EXPECT_TRUE(at::equal(*mean->Read("w"), at::tensor({static_cast<float>(1.0 / 3), 2.5f})));
  EXPECT_TRUE(at::equal(*mean->ReadRows("w", {1}), at::tensor({2.5f})));
}

// Rows [i, i, ...] of a matrix that is too large to be read at once.
class LargeReader final : public WeightReader {
 public:
  std::vector<std::string> Names() const override { return {"w"}; }
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view) const override {
    return {{kRows, kWidth}};
  }
  absl::StatusOr<at::Tensor> Read(std::string_view) const override {
    return absl::ResourceExhaustedError("all at once");
  }
  absl::StatusOr<at::Tensor> ReadRows(std::string_view,
                                      absl::Span<const int64_t> rows) const override {
    largest_ = std::max(largest_, rows.size());
    const at::Tensor values = at::empty({std::ssize(rows), kWidth});
    for (size_t i = 0; i < rows.size(); ++i) {
      values.select(0, static_cast<int64_t>(i)).fill_(static_cast<float>(rows[i]));
    }
    return values;
  }
  int64_t ReadingBytes(std::string_view) const override { return 4096; }
  size_t largest() const { return largest_; }

  static constexpr int64_t kRows = 400;
  static constexpr int64_t kWidth = 4096;

 private:
  mutable size_t largest_ = 0;
};

TEST(AverageReader, HoldsPiecesOfThePartsAtATime) {
  const LargeReader part;
  std::vector<AverageReader::Part> parts(6, {"part", &part});
  const auto mean = AverageReader::Create(parts);
  ASSERT_TRUE(mean.ok()) << mean.status();
  const auto read = mean->Read("w");
  ASSERT_TRUE(read.ok()) << read.status();
  const at::Tensor expected = at::arange(LargeReader::kRows, at::kFloat)
                                  .unsqueeze(1)
                                  .expand({LargeReader::kRows, LargeReader::kWidth});
  EXPECT_TRUE(at::equal(*read, expected));
  EXPECT_LE(parts.size() * part.largest() * LargeReader::kWidth, size_t{1} << 22);
}

TEST(AverageReader, SaysWhatReadingTakes) {
  const LargeReader part;
  for (const size_t parts : {2, 6}) {
    const auto mean = AverageReader::Create(std::vector<AverageReader::Part>(parts, {"", &part}));
    ASSERT_TRUE(mean.ok()) << mean.status();
    const MemoryMeter meter;
    const auto read = mean->Read("w");
    ASSERT_TRUE(read.ok()) << read.status();
    const int64_t beside = meter.peak() - 4 * read->numel();
    EXPECT_LE(beside, mean->ReadingBytes("w"));
    EXPECT_GE(beside, mean->ReadingBytes("w") * 9 / 10);
  }
}

TEST(AverageReader, ReadsNumbersWithoutRows) {
  const MapReader a({{"beta", at::full({}, 1.0f)}}), b({{"beta", at::full({}, 2.0f)}});
  EXPECT_TRUE(
      at::equal(*AverageReader::Create({{"a", &a}, {"b", &b}})->Read("beta"), at::full({}, 1.5f)));
}

TEST(AverageReader, RefusesOtherTensorsByName) {
  const MapReader a = ReaderOf(at::tensor({1.0f, 2.0f})), longer = ReaderOf(at::full({3}, 1.0f)),
                  less({{"w", at::tensor({1.0f, 2.0f})}});
  EXPECT_THAT(std::string(AverageReader::Create({{"a", &a}, {"b", &less}}).status().message()),
              AllOf(HasSubstr("'a'"), HasSubstr("'b'"), HasSubstr("'bias'")));
  EXPECT_THAT(
      std::string(
          AverageReader::Create({{"a", &a}, {"b", &longer}})->Shape("w").status().message()),
      AllOf(HasSubstr("'w' is [2] in 'a' and [3] in 'b'")));
  EXPECT_FALSE(AverageReader::Create({}).ok());
  EXPECT_TRUE(absl::IsNotFound(AverageReader::Create({{"a", &a}})->Read("gone").status()));
}

}  // namespace average_reader_test
}  // namespace ptqwatch::internal
