#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ptqwatch/quantizer.h"

namespace ptqwatch {
namespace {

using ::testing::HasSubstr;

std::string MessageFor(const QuantizerSpec& spec) {
  const absl::Status status = Validate(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(QuantizerSpec, DefaultIsValid) { EXPECT_TRUE(Validate(QuantizerSpec{}).ok()); }

TEST(QuantizerSpec, AllowsExactlyTheFourBitWidths) {
  for (int bits = -1; bits <= 33; ++bits) {
    QuantizerSpec spec;
    spec.bits = bits;
    const bool known = bits == 2 || bits == 3 || bits == 4 || bits == 8;
    EXPECT_EQ(Validate(spec).ok(), known) << bits;
  }
}

TEST(QuantizerSpec, NamesFieldAndValueWhenInvalid) {
  QuantizerSpec spec;
  spec.bits = 5;
  EXPECT_THAT(MessageFor(spec), HasSubstr("bits is 5"));
  spec = {};
  spec.group_size = 0;
  EXPECT_THAT(MessageFor(spec), HasSubstr("group_size is 0"));
  spec.group_size = -2;
  EXPECT_THAT(MessageFor(spec), HasSubstr("group_size is -2"));
  spec = {};
  spec.damp = -0.5;
  EXPECT_THAT(MessageFor(spec), HasSubstr("damp is -0.5"));
  spec.damp = std::nan("");
  EXPECT_THAT(MessageFor(spec), HasSubstr("damp is nan"));
  spec = {};
  spec.min_tokens_ratio = std::numeric_limits<double>::infinity();
  EXPECT_THAT(MessageFor(spec), HasSubstr("min_tokens_ratio is inf"));
  spec = {};
  spec.method = static_cast<QuantizationMethod>(17);
  EXPECT_THAT(MessageFor(spec), HasSubstr("method is 17"));
  spec = {};
  spec.order = static_cast<QuantizationOrder>(9);
  EXPECT_THAT(MessageFor(spec), HasSubstr("order is 9"));
}

TEST(QuantizerSpec, DescribesWhatDecidesTheCodes) {
  QuantizerSpec spec;
  EXPECT_EQ(Describe(spec), "gptq b4 g128 sym act damp 0.01");
  spec.order = QuantizationOrder::kNone;
  spec.symmetric = false;
  spec.group_size = -1;
  spec.bits = 3;
  spec.damp = 0.1;
  spec.min_tokens_ratio = 0;
  EXPECT_EQ(Describe(spec), "gptq b3 g-1 asym none damp 0.1 min_tokens 0");
  spec.method = QuantizationMethod::kRtn;
  EXPECT_EQ(Describe(spec), "rtn b3 g-1 asym");
}

TEST(QuantizationMethod, ParsesItsOwnNames) {
  for (QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    const absl::StatusOr<QuantizationMethod> parsed = ParseQuantizationMethod(ToString(method));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, method);
  }
}

TEST(QuantizationMethod, ListsKnownNamesWhenUnknown) {
  for (std::string_view name : {"", "GPTQ", "gptq ", "awq"}) {
    const absl::Status status = ParseQuantizationMethod(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rtn and gptq"));
  }
}

TEST(LayerStatus, HasTheDocumentedNames) {
  EXPECT_EQ(ToString(LayerStatus::kOk), "ok");
  EXPECT_EQ(ToString(LayerStatus::kDamped), "damped");
  EXPECT_EQ(ToString(LayerStatus::kTooFewTokens), "too_few_tokens");
  EXPECT_EQ(ToString(LayerStatus::kNonFinite), "nonfinite");
  EXPECT_EQ(ToString(LayerStatus::kRtnFallback), "rtn_fallback");
  EXPECT_EQ(ToString(LayerStatus::kUnsupported), "unsupported");
}

}  // namespace
}  // namespace ptqwatch
