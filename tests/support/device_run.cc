#include "support/device_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "cuda/kernels/scalars.h"

namespace ptqwatch::testing {
namespace {

using internal::DeviceGram;
using internal::DeviceLayer;
using internal::DeviceRows;
using internal::RowType;

// The float16 bits of a number that float16 represents exactly, an infinity or a NaN.
uint16_t ToFloat16(float value) {
  if (!std::isfinite(value)) return std::isnan(value) ? 0x7e00 : (value < 0 ? 0xfc00 : 0x7c00);
  const float rounded = internal::RoundToDtype(std::abs(value), ScaleDtype::kFloat16);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (rounded < 0x1p-14f) return static_cast<uint16_t>(sign | static_cast<int>(rounded * 0x1p24f));
  const uint32_t bits = internal::FloatBits(rounded);
  return static_cast<uint16_t>(sign | (((bits >> 23) - 112) << 10) | ((bits >> 13) & 0x3ff));
}

void ExpectNear(const char* name, std::optional<double> got, std::optional<double> expected,
                double tolerance) {
  ASSERT_EQ(got.has_value(), expected.has_value()) << name;
  if (!got.has_value()) return;
  if (std::isinf(*expected)) {
    EXPECT_EQ(*got, *expected) << name;
  } else {
    EXPECT_NEAR(*got, *expected, tolerance * std::abs(*expected)) << name;
  }
}

}  // namespace

Matrix RoundedTo(RowType type, const Matrix& x) {
  Matrix rounded = x;
  for (float& value : rounded.values) {
    if (type == RowType::kBFloat16) value = internal::FromBFloat16(internal::ToBFloat16(value));
    if (type == RowType::kFloat16) value = internal::FromFloat16(ToFloat16(value));
  }
  return rounded;
}

const float* DeviceRun::Upload(const Matrix& matrix) {
  const int64_t count = static_cast<int64_t>(matrix.values.size());
  const absl::StatusOr<float*> memory = device_.arena().TakeArray<float>(count, "a matrix");
  EXPECT_TRUE(memory.ok()) << memory.status();
  if (!memory.ok()) return nullptr;
  EXPECT_TRUE(device_.Upload(*memory, matrix.values.data(), 4 * count).ok());
  return *memory;
}

DeviceRows DeviceRun::UploadRows(const Matrix& x, RowType type) {
  DeviceRows rows{.type = type, .rows = x.rows, .cols = x.cols, .stride = x.cols};
  if (type == RowType::kFloat32) {
    rows.data = Upload(x);
    return rows;
  }
  std::vector<uint16_t> bits;
  for (const float value : x.values) {
    bits.push_back(type == RowType::kBFloat16 && std::isfinite(value) ? internal::ToBFloat16(value)
                   : type == RowType::kBFloat16
                       ? static_cast<uint16_t>(internal::FloatBits(value) >> 16)
                       : ToFloat16(value));
  }
  const int64_t bytes = 2 * static_cast<int64_t>(bits.size());
  const absl::StatusOr<void*> memory = device_.arena().Take(bytes, "rows");
  EXPECT_TRUE(memory.ok()) << memory.status();
  if (memory.ok()) {
    EXPECT_TRUE(device_.Upload(*memory, bits.data(), bytes).ok());
  }
  rows.data = memory.value_or(nullptr);
  return rows;
}

const DeviceGram* DeviceRun::Gram(const Matrix& x, RowType type) {
  absl::StatusOr<DeviceGram> gram = DeviceGram::Create(device_, x.cols);
  EXPECT_TRUE(gram.ok()) << gram.status();
  if (!gram.ok()) return nullptr;
  const absl::Status added = gram->Add(UploadRows(x, type));
  EXPECT_TRUE(added.ok()) << added;
  const absl::Status finished = gram->Finish();
  EXPECT_TRUE(finished.ok()) << finished;
  grams_.push_back(*gram);
  return &grams_.back();
}

const DeviceGram* DeviceRun::Gram(const GramStatistics& statistics) {
  const absl::StatusOr<DeviceGram> gram = DeviceGram::FromHost(device_, statistics);
  EXPECT_TRUE(gram.ok()) << gram.status();
  if (!gram.ok()) return nullptr;
  grams_.push_back(*gram);
  return &grams_.back();
}

DeviceLayer DeviceRun::Layer(const Matrix& weight, const DeviceGram* gram,
                             const QuantizerSpec& spec) {
  return {.weight = Upload(weight),
          .rows = weight.rows,
          .cols = weight.cols,
          .gram = gram,
          .spec = spec};
}

std::vector<QuantizedWeight> DeviceRun::Quantize(const std::vector<DeviceLayer>& layers) {
  internal::DeviceQuantizer quantizer(device_);
  const absl::Status begun = quantizer.Begin(layers);
  EXPECT_TRUE(begun.ok()) << begun;
  std::vector<QuantizedWeight> weights(layers.size());
  if (!begun.ok()) return weights;
  const absl::StatusOr<std::vector<internal::DeviceResult>> results = quantizer.Collect();
  EXPECT_TRUE(results.ok()) << results.status();
  if (!results.ok()) return weights;
  for (size_t i = 0; i < layers.size(); ++i) {
    absl::StatusOr<QuantizedWeight> weight = CopyToHost(device_, (*results)[i]);
    EXPECT_TRUE(weight.ok()) << weight.status();
    if (weight.ok()) weights[i] = *std::move(weight);
  }
  return weights;
}

absl::StatusOr<QuantizedWeight> CopyToHost(internal::ComputeDevice& device,
                                           const internal::DeviceResult& result) {
  QuantizedWeight host = result.numbers;
  if (result.codes == nullptr) return host;
  const size_t size = static_cast<size_t>(result.rows * result.cols);
  std::vector<internal::HostCopy> copies;
  const auto add = [&](auto& values, size_t count, const auto* from) {
    if (from == nullptr) return;
    values.resize(count);
    copies.push_back({.host = values.data(),
                      .from = from,
                      .bytes = static_cast<int64_t>(count * sizeof(*from))});
  };
  std::vector<int32_t> order;
  add(host.codes, size, result.codes);
  add(host.dequantized, size, result.dequantized);
  add(host.scale, static_cast<size_t>(result.scales), result.scale);
  add(host.zero, static_cast<size_t>(result.scales), result.zero);
  add(host.channel_scale, static_cast<size_t>(result.cols), result.channel_scale);
  add(order, static_cast<size_t>(result.cols), result.order);
  if (const absl::Status read = device.Read(copies); !read.ok()) return read;
  host.order.assign(order.begin(), order.end());
  return host;
}

void ExpectAgrees(const QuantizedWeight& got, const QuantizedWeight& expected,
                  Tolerance tolerance) {
  EXPECT_EQ(got.status, expected.status) << got.status_detail;
  EXPECT_EQ(got.status_detail, expected.status_detail);
  EXPECT_EQ(got.zero, expected.zero);
  // Sums in float32 may swap inputs of almost equal size.
  if (expected.order.size() <= 256) {
    EXPECT_EQ(got.order, expected.order);
  } else {
    EXPECT_THAT(got.order, ::testing::UnorderedElementsAreArray(expected.order));
  }
  EXPECT_EQ(got.clipped_groups, expected.clipped_groups);
  EXPECT_EQ(got.damp, expected.damp);
  EXPECT_NEAR(got.damp_value, expected.damp_value, 1e-5 * expected.damp_value);
  EXPECT_EQ(got.dead_columns, expected.dead_columns);
  EXPECT_EQ(got.duplicate_columns, expected.duplicate_columns);
  EXPECT_EQ(got.outlier_columns, expected.outlier_columns);
  EXPECT_EQ(got.channel_scale_ratio, expected.channel_scale_ratio);
  EXPECT_EQ(got.tensor_scale, expected.tensor_scale);
  ASSERT_EQ(got.error_parts.has_value(), expected.error_parts.has_value());
  if (got.error_parts) {
    // Relative to the sum of the squared weights. The host sums a group in float32.
    EXPECT_NEAR(got.error_parts->dead_zone, expected.error_parts->dead_zone, 1e-8);
    EXPECT_NEAR(got.error_parts->grid_noise, expected.error_parts->grid_noise, 1e-8);
    EXPECT_NEAR(got.error_parts->scale_bias, expected.error_parts->scale_bias, 1e-8);
  }
  ASSERT_EQ(got.scale.size(), expected.scale.size());
  ASSERT_EQ(got.codes.size(), expected.codes.size());
  ASSERT_EQ(got.dequantized.size(), expected.dequantized.size());
  for (size_t i = 0; i < got.scale.size(); ++i) {
    // AWQ's channel scale may differ in its last bit.
    EXPECT_NEAR(got.scale[i], expected.scale[i],
                expected.channel_scale.empty() ? 0 : 1e-6f * expected.scale[i])
        << i;
  }
  size_t differ = 0;
  for (size_t i = 0; i < got.codes.size(); ++i) {
    if (got.codes[i] != expected.codes[i]) {
      ++differ;
    } else if (expected.channel_scale.empty()) {
      ASSERT_EQ(got.dequantized[i], expected.dequantized[i]) << i;
    }
  }
  EXPECT_LE(static_cast<double>(differ), tolerance.codes * static_cast<double>(got.codes.size()))
      << differ << " codes differ";
  ExpectNear("loss", got.loss, expected.loss, tolerance.loss);
  ExpectNear("loss_damped", got.loss_damped, expected.loss_damped, tolerance.loss);
  ExpectNear("rtn_loss", got.rtn_loss, expected.rtn_loss, tolerance.loss);
  ExpectNear("output_energy", got.output_energy, expected.output_energy, tolerance.loss);
  ASSERT_EQ(got.search_losses.size(), expected.search_losses.size());
  for (size_t i = 0; i < got.search_losses.size(); ++i) {
    ExpectNear("search_losses", got.search_losses[i], expected.search_losses[i], tolerance.loss);
  }
}

void ExpectIdentical(const QuantizedWeight& got, const QuantizedWeight& expected) {
  EXPECT_EQ(got.status, expected.status);
  EXPECT_EQ(got.status_detail, expected.status_detail);
  EXPECT_EQ(got.codes, expected.codes);
  EXPECT_EQ(got.scale, expected.scale);
  EXPECT_EQ(got.zero, expected.zero);
  EXPECT_EQ(got.dequantized, expected.dequantized);
  EXPECT_EQ(got.tensor_scale, expected.tensor_scale);
  EXPECT_EQ(got.error_parts.has_value(), expected.error_parts.has_value());
  EXPECT_EQ(got.order, expected.order);
  EXPECT_EQ(got.damp, expected.damp);
  EXPECT_EQ(got.damp_value, expected.damp_value);
  EXPECT_EQ(got.clipped_groups, expected.clipped_groups);
  EXPECT_EQ(got.loss, expected.loss);
  EXPECT_EQ(got.loss_damped, expected.loss_damped);
  EXPECT_EQ(got.rtn_loss, expected.rtn_loss);
  EXPECT_EQ(got.output_energy, expected.output_energy);
  EXPECT_EQ(got.dead_columns, expected.dead_columns);
  EXPECT_EQ(got.duplicate_columns, expected.duplicate_columns);
  EXPECT_EQ(got.channel_scale, expected.channel_scale);
  EXPECT_EQ(got.search_losses, expected.search_losses);
  EXPECT_EQ(got.outlier_columns, expected.outlier_columns);
}

void ExpectSameAlone(const QuantizedWeight& got, const QuantizedWeight& expected) {
  if (BatchesAreExact()) {
    ExpectIdentical(got, expected);
  } else {
    ExpectAgrees(got, expected);
  }
}

}  // namespace ptqwatch::testing
