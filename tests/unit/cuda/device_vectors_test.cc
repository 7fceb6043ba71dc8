#include "cuda/device_vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "support/device_run.h"

namespace ptqwatch::internal {
namespace device_vectors_test {

// Vectors of small whole numbers, so that sums of products are exact in any order.
template <typename T>
std::vector<T> Numbers(int64_t size, int64_t seed) {
  std::vector<T> numbers;
  for (int64_t i = 0; i < size; ++i) numbers.push_back(static_cast<T>((i * i + 5 * seed) % 11 - 5));
  return numbers;
}

template <typename T>
struct Fixture {
  explicit Fixture(std::vector<int64_t> sizes_in)
      : sizes(std::move(sizes_in)), device(testing::MakeTestDevice()) {
    for (int64_t piece : sizes) size += piece;
    if (device == nullptr) return;
    auto created = DeviceVectors::Create(*device, sizes);
    EXPECT_TRUE(created.ok()) << created.status();
    EXPECT_EQ(device->arena().used(), DeviceVectors::Bytes(sizes));
    vectors = std::make_unique<DeviceVectors>(*std::move(created));
  }
  T* Upload(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(sizeof(T) * values.size());
    T* memory = *device->arena().template TakeArray<T>(std::ssize(values), "a vector");
    EXPECT_TRUE(device->Upload(memory, values.data(), bytes).ok());
    return memory;
  }
  std::vector<T> Read(const T* memory) {
    std::vector<T> values(static_cast<size_t>(size));
    const HostCopy copy{.host = values.data(),
                        .from = memory,
                        .bytes = static_cast<int64_t>(sizeof(T) * values.size())};
    EXPECT_TRUE(device->Read({&copy, 1}).ok());
    return values;
  }

  std::vector<int64_t> sizes;
  int64_t size = 0;
  std::unique_ptr<ComputeDevice> device;
  std::unique_ptr<DeviceVectors> vectors;
};

template <typename T>
struct DeviceVectorsTest : ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DeviceVectorsTest, Types);

TYPED_TEST(DeviceVectorsTest, SignsAreTheBitsOfTheGenerator) {
  for (const int64_t size : {1, 63, 64, 4096, 10001}) {
    Fixture<TypeParam> fixture({size});
    if (fixture.device == nullptr) return;
    TypeParam* const x = fixture.Upload(Numbers<TypeParam>(size, 0));
    ASSERT_TRUE(fixture.vectors->FillSigns(7, x).ok());
    const std::vector<TypeParam> signs = fixture.Read(x);
    for (int64_t i = 0; i < size; ++i) {
      const uint64_t word = RandomWord(7, static_cast<uint64_t>(i / 64));
      ASSERT_EQ(signs[static_cast<size_t>(i)], (word >> (i % 64) & 1) != 0 ? 1 : -1) << i;
    }
  }
  EXPECT_EQ(RandomWord(0, 0), 0xe220a8397b1dcdafULL);  // the first number of splitmix64
}

TYPED_TEST(DeviceVectorsTest, SumsByPiece) {
  // More vectors than a kernel takes, and pieces of more and less than a block's part.
  constexpr size_t kVectors = kMaxBatch + 3;
  Fixture<TypeParam> fixture({3, 70000, 0, 131073, 1});
  if (fixture.device == nullptr) return;
  const std::vector<TypeParam> y = Numbers<TypeParam>(fixture.size, 100);
  const TypeParam* const on_device = fixture.Upload(y);
  std::vector<std::vector<TypeParam>> xs;
  std::vector<const TypeParam*> pointers;
  for (size_t i = 0; i < kVectors; ++i) {
    xs.push_back(Numbers<TypeParam>(fixture.size, static_cast<int64_t>(i)));
    pointers.push_back(fixture.Upload(xs.back()));
  }
  const auto dots = fixture.vectors->template Dots<TypeParam>(pointers, on_device);
  ASSERT_TRUE(dots.ok()) << dots.status();
  std::vector<double> expected;
  for (const std::vector<TypeParam>& x : xs) {
    size_t i = 0;
    for (const int64_t piece : fixture.sizes) {
      double sum = 0;
      for (int64_t k = 0; k < piece; ++k, ++i) {
        sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
      }
      expected.push_back(sum);
    }
  }
  EXPECT_EQ(*dots, expected);
}

TYPED_TEST(DeviceVectorsTest, AddsUpInFloat64) {
  constexpr size_t kVectors = 3;
  Fixture<TypeParam> fixture({1500, 33});
  if (fixture.device == nullptr) return;
  std::vector<TypeParam> y = Numbers<TypeParam>(fixture.size, 100);
  TypeParam* const on_device = fixture.Upload(y);
  const std::vector<double> factors = {0.125, -3, 1e-9};
  std::vector<const TypeParam*> pointers;
  std::vector<std::vector<TypeParam>> xs;
  for (size_t i = 0; i < kVectors; ++i) {
    xs.push_back(Numbers<TypeParam>(fixture.size, static_cast<int64_t>(i)));
    pointers.push_back(fixture.Upload(xs.back()));
  }
  ASSERT_TRUE(fixture.vectors->template Add<TypeParam>(factors, pointers, on_device).ok());
  for (size_t i = 0; i < y.size(); ++i) {
    double sum = static_cast<double>(y[i]);
    for (size_t k = 0; k < kVectors; ++k) sum += factors[k] * static_cast<double>(xs[k][i]);
    y[i] = static_cast<TypeParam>(sum);
  }
  EXPECT_EQ(fixture.Read(on_device), y);
}

TEST(DeviceVectors, LargeVectorsGiveFewSums) {
  // 7 billion elements: the table and 16 sums a part.
  EXPECT_LE(DeviceVectors::Bytes(std::vector<int64_t>{int64_t{7} << 30}), 4096 * (16 + 16 * 8));
}

}  // namespace device_vectors_test
}  // namespace ptqwatch::internal
