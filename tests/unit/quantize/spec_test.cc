#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace spec_test {

using ::testing::HasSubstr;

std::string MessageFor(const QuantizerSpec& spec) {
  const absl::Status status = Validate(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(QuantizerSpec, DefaultIsValid) { EXPECT_TRUE(Validate(QuantizerSpec{}).ok()); }

TEST(QuantizerSpec, AllowsTwoToEightBits) {
  for (int bits = -1; bits <= 33; ++bits) {
    QuantizerSpec spec;
    spec.bits = bits;
    EXPECT_EQ(Validate(spec).ok(), bits >= 2 && bits <= 8) << bits;
  }
}

TEST(QuantizerSpec, NamesFieldAndValueWhenInvalid) {
  QuantizerSpec spec;
  spec.bits = 9;
  EXPECT_THAT(MessageFor(spec), HasSubstr("bits is 9; it must be 2 to 8"));
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
  spec = {};
  spec.scale_dtype = static_cast<ScaleDtype>(5);
  EXPECT_THAT(MessageFor(spec), HasSubstr("scale_dtype is 5"));
  spec = {};
  spec.clip = static_cast<ClipSearch>(4);
  EXPECT_THAT(MessageFor(spec), HasSubstr("clip is 4"));
  spec = {};
  spec.outlier_threshold = -0.5;
  EXPECT_THAT(MessageFor(spec), HasSubstr("outlier_threshold is -0.5"));
}

TEST(QuantizerSpec, TakesOnlyTheBitsThatAMethodHas) {
  for (int bits = 2; bits <= 8; ++bits) {
    QuantizerSpec spec;
    spec.bits = bits;
    spec.method = QuantizationMethod::kLlmInt8;
    EXPECT_EQ(Validate(spec).ok(), bits == 8);
    if (bits != 8) {
      EXPECT_THAT(MessageFor(spec), HasSubstr("8 for llm_int8"));
    }
    spec.method = QuantizationMethod::kNf4;
    EXPECT_EQ(Validate(spec).ok(), bits == 4);
    if (bits != 4) {
      EXPECT_THAT(MessageFor(spec), HasSubstr("4 for nf4"));
    }
    spec.method = QuantizationMethod::kAwq;
    EXPECT_TRUE(Validate(spec).ok());
  }
}

QuantizerSpec WithClip(ClipSearch clip, double value) {
  QuantizerSpec spec;
  spec.clip = clip;
  spec.clip_value = value;
  return spec;
}

TEST(QuantizerSpec, TakesAClipValueWhereARuleHasOne) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double value : {1e-300, 50.0, 99.99984, 100.0}) {
    EXPECT_TRUE(Validate(WithClip(ClipSearch::kPercentile, value)).ok()) << value;
  }
  for (double value : {1e-300, 12.85, 1e300}) {
    EXPECT_TRUE(Validate(WithClip(ClipSearch::kStd, value)).ok()) << value;
  }
  for (double value : {0.0, -1.0, 100.5, kInfinity, std::nan("")}) {
    EXPECT_THAT(MessageFor(WithClip(ClipSearch::kPercentile, value)),
                HasSubstr("it must be above 0 and at most 100 for clip percentile"));
  }
  for (double value : {0.0, -1.0, kInfinity, std::nan("")}) {
    EXPECT_THAT(MessageFor(WithClip(ClipSearch::kStd, value)),
                HasSubstr("it must be finite and above 0 for clip std"));
  }
  EXPECT_THAT(MessageFor(WithClip(ClipSearch::kStd, 0)), HasSubstr("clip_value is 0;"));
  EXPECT_THAT(MessageFor(WithClip(ClipSearch::kNone, 3)),
              HasSubstr("clip_value is 3; it must be 0 for clip none"));
  EXPECT_THAT(MessageFor(WithClip(ClipSearch::kMse, std::nan(""))),
              HasSubstr("clip_value is nan; it must be 0 for clip mse"));
}

TEST(QuantizerSpec, HasRangesByRuleOnSymmetricIntegerGridsAlone) {
  const auto refuse = [](QuantizerSpec spec, std::string_view where) {
    const std::string text(where);
    EXPECT_THAT(MessageFor(spec), HasSubstr("clip is std; it must be none or mse " + text));
    spec.clip = ClipSearch::kNone;
    spec.clip_value = 0;
    EXPECT_TRUE(Validate(spec).ok());
    spec.narrow_range = true;
    EXPECT_THAT(MessageFor(spec), HasSubstr("narrow_range is true; it must be false " + text));
  };
  QuantizerSpec spec = WithClip(ClipSearch::kStd, 3);
  spec.narrow_range = true;
  EXPECT_TRUE(Validate(spec).ok());
  spec.narrow_range = false;
  spec.symmetric = false;
  refuse(spec, "with symmetric false");
  spec.symmetric = true;
  for (const auto& [format, bits] :
       {std::pair{QuantizationFormat::kFp8, 8}, {QuantizationFormat::kNvfp4, 4}}) {
    spec.format = format;
    spec.bits = bits;
    refuse(spec, "for " + std::string(ToString(format)));
  }
  spec.format = QuantizationFormat::kInt;
  for (const auto& [method, bits] :
       {std::pair{QuantizationMethod::kLlmInt8, 8}, {QuantizationMethod::kNf4, 4}}) {
    spec.method = method;
    spec.bits = bits;
    refuse(spec, "for " + std::string(ToString(method)));
  }
  spec = WithClip(ClipSearch::kPercentile, 99);
  spec.group_rows = 4;
  EXPECT_THAT(MessageFor(spec), HasSubstr("group_rows is 4; it must be 1 with clip"));
}

TEST(QuantizerSpec, HasALeastScaleOnIntegerGridsAlone) {
  QuantizerSpec spec;
  for (const double value : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    spec.min_scale = value;
    EXPECT_THAT(MessageFor(spec), HasSubstr("min_scale is"));
  }
  spec.min_scale = 0.25;
  EXPECT_TRUE(Validate(spec).ok());
  spec.symmetric = false;
  EXPECT_TRUE(Validate(spec).ok());
  spec.bits = 8;
  spec.method = QuantizationMethod::kLlmInt8;
  EXPECT_THAT(MessageFor(spec), HasSubstr("min_scale is 0.25; it must be 0 for llm_int8"));
  spec = {.bits = 8, .format = QuantizationFormat::kFp8, .min_scale = 0.25};
  EXPECT_THAT(MessageFor(spec), HasSubstr("min_scale is 0.25; it must be 0 for fp8_e4m3"));
}

TEST(QuantizerSpec, RoundsScalesLastWithRtnOnSymmetricIntegerGridsAlone) {
  const auto refusal = [](std::string_view why) {
    return HasSubstr("round_scale_last is true; it must be false " + std::string(why));
  };
  QuantizerSpec spec{.method = QuantizationMethod::kRtn, .round_scale_last = true};
  EXPECT_TRUE(Validate(spec).ok());
  spec.clip = ClipSearch::kMse;
  EXPECT_THAT(MessageFor(spec), refusal("for clip mse"));
  spec.clip = ClipSearch::kNone;
  spec.symmetric = false;
  EXPECT_THAT(MessageFor(spec), refusal("with symmetric false"));
  spec.symmetric = true;
  spec.format = QuantizationFormat::kNvfp4;
  EXPECT_THAT(MessageFor(spec), refusal("for nvfp4"));
  spec.format = QuantizationFormat::kInt;
  spec.method = QuantizationMethod::kGptq;
  EXPECT_THAT(MessageFor(spec), refusal("for gptq"));
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
  spec.clip = ClipSearch::kMse;
  spec.scale_dtype = ScaleDtype::kFloat16;
  EXPECT_EQ(Describe(spec), "rtn b3 g-1 asym clip mse scale f16");
  spec.method = QuantizationMethod::kAwq;
  EXPECT_EQ(Describe(spec), "awq b3 g-1 asym clip mse scale f16");
  spec = WithClip(ClipSearch::kStd, 12.85);
  spec.bits = 6;
  spec.group_size = -1;
  spec.narrow_range = true;
  EXPECT_EQ(Describe(spec), "gptq b6 g-1 sym narrow act damp 0.01 clip std 12.85");
  spec = WithClip(ClipSearch::kPercentile, 99.99984);
  spec.method = QuantizationMethod::kRtn;
  spec.scale_dtype = ScaleDtype::kFloat16;
  EXPECT_EQ(Describe(spec), "rtn b4 g128 sym clip percentile 99.99984 scale f16");
  spec.round_scale_last = true;
  spec.min_scale = 0.25;
  EXPECT_EQ(Describe(spec),
            "rtn b4 g128 sym clip percentile 99.99984 scale f16 last min_scale 0.25");
  spec = {};
  spec.bits = 8;
  spec.method = QuantizationMethod::kLlmInt8;
  EXPECT_EQ(Describe(spec), "llm_int8 b8 threshold 6");
  spec.bits = 4;
  spec.method = QuantizationMethod::kNf4;
  spec.scale_dtype = ScaleDtype::kBFloat16;
  EXPECT_EQ(Describe(spec), "nf4 b4 block 64 scale bf16");
}

// Fingerprints of runs hash these texts: a run directory of an earlier version must still resume.
TEST(QuantizerSpec, IsDescribedByTheSameTextForEver) {
  using enum QuantizationMethod;
  QuantizerSpec all{.group_size = 64,
                    .symmetric = false,
                    .order = QuantizationOrder::kNone,
                    .damp = 0.025,
                    .min_tokens_ratio = 0.5,
                    .scale_dtype = ScaleDtype::kFloat16,
                    .clip = ClipSearch::kMse,
                    .outlier_threshold = 4.5,
                    .baselines = false};
  const auto text = [&](QuantizationMethod method, int bits) {
    all.method = method;
    all.bits = bits;
    return Describe(all);
  };
  EXPECT_EQ(text(kRtn, 2), "rtn b2 g64 asym clip mse scale f16");
  EXPECT_EQ(text(kGptq, 8), "gptq b8 g64 asym none damp 0.025 min_tokens 0.5 clip mse scale f16");
  EXPECT_EQ(text(kAwq, 3), "awq b3 g64 asym clip mse scale f16");
  EXPECT_EQ(text(kLlmInt8, 8), "llm_int8 b8 threshold 4.5 scale f16");
  EXPECT_EQ(text(kNf4, 4), "nf4 b4 block 64 scale f16");
  all = {.outlier_threshold = 0};
  EXPECT_EQ(text(kRtn, 4), "rtn b4 g128 sym");
  EXPECT_EQ(text(kGptq, 4), "gptq b4 g128 sym act damp 0.01");
  EXPECT_EQ(text(kAwq, 4), "awq b4 g128 sym");
  EXPECT_EQ(text(kLlmInt8, 8), "llm_int8 b8 threshold 0");
  EXPECT_EQ(text(kNf4, 4), "nf4 b4 block 64");
}

TEST(QuantizerSpec, DefaultsAreRtnAndGptqAtThreeAndFourBits) {
  std::vector<std::string> texts;
  for (const QuantizerSpec& spec : DefaultQuantizers()) {
    EXPECT_TRUE(Validate(spec).ok());
    texts.push_back(Describe(spec));
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("rtn b3 g128 sym", "rtn b4 g128 sym",
                                            "gptq b3 g128 sym act damp 0.01",
                                            "gptq b4 g128 sym act damp 0.01"));
}

TEST(ParseQuantizer, ReadsEveryShortName) {
  for (std::string_view name :
       {"rtn3", "gptq5", "gptq6", "gptq8", "awq7", "nf4", "llm_int8", "awq4", "gptq-nvfp4",
        "rtn-fp8_e4m3", "gptq-mxfp8", "gptq-mxfp4-h32", "rtn4-int-h64"}) {
    const absl::StatusOr<QuantizerSpec> spec = ParseQuantizer(name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(ShortName(KeyOf(*spec)), name);
  }
  const QuantizerSpec spec = *ParseQuantizer("gptq-mxfp4-h32");
  EXPECT_EQ(spec.bits, 4);
  EXPECT_EQ(spec.format, QuantizationFormat::kMxfp4);
  EXPECT_EQ(spec.rotation, 32);
  EXPECT_EQ(ParseQuantizer("rtn-fp8")->format, QuantizationFormat::kFp8);
}

TEST(ParseQuantizer, RefusesNamesOfNoQuantizer) {
  for (std::string_view name : {"", "gptq", "4", "gptq-int", "hqq4", "gptq-fp6", "gptq9",
                                "awq-nvfp4", "gptq8-nvfp4", "gptq-mxfp4-h7", "gptq-mxfp4-hx"}) {
    EXPECT_EQ(ParseQuantizer(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(QuantizationMethod, ParsesItsOwnNames) {
  for (QuantizationMethod method : testing::kAllMethods) {
    const absl::StatusOr<QuantizationMethod> parsed = ParseQuantizationMethod(ToString(method));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, method);
  }
}

TEST(QuantizationMethod, ParsesOtherSpellings) {
  for (std::string_view name : {"LLM.int8", "llm-int8", "LLMint8", "llm_INT8"}) {
    EXPECT_EQ(*ParseQuantizationMethod(name), QuantizationMethod::kLlmInt8) << name;
  }
  EXPECT_EQ(*ParseQuantizationMethod("GPTQ"), QuantizationMethod::kGptq);
  EXPECT_EQ(*ParseQuantizationMethod("NF-4"), QuantizationMethod::kNf4);
}

TEST(QuantizationMethod, ListsKnownNamesWhenUnknown) {
  for (std::string_view name : {"", "gptq ", "awq2", "int8", "hqq"}) {
    const absl::Status status = ParseQuantizationMethod(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rtn, gptq, awq, llm_int8 and nf4"));
  }
}

TEST(ScaleDtype, ParsesItsOwnNamesAlone) {
  for (ScaleDtype dtype : {ScaleDtype::kFloat32, ScaleDtype::kFloat16, ScaleDtype::kBFloat16}) {
    EXPECT_EQ(*ParseScaleDtype(ToString(dtype)), dtype);
  }
  const absl::Status status = ParseScaleDtype("f8").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("f32, f16 and bf16"));
}

TEST(QuantizationOrder, ParsesItsOwnNamesAlone) {
  for (QuantizationOrder order : {QuantizationOrder::kNone, QuantizationOrder::kStaticAct}) {
    EXPECT_EQ(*ParseQuantizationOrder(ToString(order)), order);
  }
  EXPECT_EQ(ParseQuantizationOrder("static").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ClipSearch, ParsesItsOwnNamesAlone) {
  for (ClipSearch clip :
       {ClipSearch::kNone, ClipSearch::kMse, ClipSearch::kPercentile, ClipSearch::kStd}) {
    EXPECT_EQ(*ParseClipSearch(ToString(clip)), clip);
  }
  EXPECT_THAT(std::string(ParseClipSearch("on").status().message()),
              HasSubstr("unknown clip search 'on'; known are none, mse, percentile and std"));
}

TEST(LayerStatus, ParsesItsOwnNamesAlone) {
  for (LayerStatus status :
       {LayerStatus::kOk, LayerStatus::kDamped, LayerStatus::kTooFewTokens, LayerStatus::kNonFinite,
        LayerStatus::kRtnFallback, LayerStatus::kUnsupported}) {
    EXPECT_EQ(*ParseLayerStatus(ToString(status)), status);
  }
  EXPECT_EQ(ParseLayerStatus("unknown").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LayerStatus, HasTheDocumentedNames) {
  EXPECT_EQ(ToString(LayerStatus::kOk), "ok");
  EXPECT_EQ(ToString(LayerStatus::kDamped), "damped");
  EXPECT_EQ(ToString(LayerStatus::kTooFewTokens), "too_few_tokens");
  EXPECT_EQ(ToString(LayerStatus::kNonFinite), "nonfinite");
  EXPECT_EQ(ToString(LayerStatus::kRtnFallback), "rtn_fallback");
  EXPECT_EQ(ToString(LayerStatus::kUnsupported), "unsupported");
}

}  // namespace spec_test
}  // namespace ptqwatch
