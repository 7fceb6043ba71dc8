#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "base/strings.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {
namespace {

std::string Shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return error == std::errc() ? std::string(buffer, end) : std::string("?");
}

absl::Status Invalid(std::string_view field, std::string_view value, std::string_view wanted) {
  return absl::InvalidArgumentError(
      internal::StrCat("QuantizerSpec.", field, " is ", value, "; it must be ", wanted));
}

constexpr QuantizationMethod kMethods[] = {QuantizationMethod::kRtn, QuantizationMethod::kGptq,
                                           QuantizationMethod::kAwq, QuantizationMethod::kLlmInt8,
                                           QuantizationMethod::kNf4};
constexpr ScaleDtype kScaleDtypes[] = {ScaleDtype::kFloat32, ScaleDtype::kFloat16,
                                       ScaleDtype::kBFloat16};

// Lower case, without '.', '_' and '-'.
std::string Plain(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '.' && c != '_' && c != '-')
      plain += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return plain;
}

// "a, b and c".
template <typename Enum, size_t kCount>
std::string Names(const Enum (&values)[kCount]) {
  std::string text;
  for (size_t i = 0; i < kCount; ++i) {
    text += internal::StrCat(i == 0 ? "" : i + 1 == kCount ? " and " : ", ", ToString(values[i]));
  }
  return text;
}

}  // namespace

std::string_view ToString(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::kRtn:
      return "rtn";
    case QuantizationMethod::kGptq:
      return "gptq";
    case QuantizationMethod::kAwq:
      return "awq";
    case QuantizationMethod::kLlmInt8:
      return "llm_int8";
    case QuantizationMethod::kNf4:
      return "nf4";
  }
  return "unknown";
}

absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name) {
  for (QuantizationMethod method : kMethods) {
    if (Plain(name) == Plain(ToString(method))) return method;
  }
  return absl::InvalidArgumentError(
      internal::StrCat("unknown quantization method '", name, "'; known are ", Names(kMethods)));
}

std::string_view ToString(ScaleDtype dtype) {
  switch (dtype) {
    case ScaleDtype::kFloat32:
      return "f32";
    case ScaleDtype::kFloat16:
      return "f16";
    case ScaleDtype::kBFloat16:
      return "bf16";
  }
  return "unknown";
}

absl::StatusOr<ScaleDtype> ParseScaleDtype(std::string_view name) {
  for (ScaleDtype dtype : kScaleDtypes) {
    if (name == ToString(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(
      internal::StrCat("unknown scale dtype '", name, "'; known are ", Names(kScaleDtypes)));
}

std::string_view ToString(LayerStatus status) {
  switch (status) {
    case LayerStatus::kOk:
      return "ok";
    case LayerStatus::kDamped:
      return "damped";
    case LayerStatus::kTooFewTokens:
      return "too_few_tokens";
    case LayerStatus::kNonFinite:
      return "nonfinite";
    case LayerStatus::kRtnFallback:
      return "rtn_fallback";
    case LayerStatus::kUnsupported:
      return "unsupported";
  }
  return "unknown";
}

absl::Status Validate(const QuantizerSpec& spec) {
  if (std::find(std::begin(kMethods), std::end(kMethods), spec.method) == std::end(kMethods)) {
    return Invalid("method", std::to_string(static_cast<int>(spec.method)), Names(kMethods));
  }
  if (spec.bits != 2 && spec.bits != 3 && spec.bits != 4 && spec.bits != 8) {
    return Invalid("bits", std::to_string(spec.bits), "2, 3, 4 or 8");
  }
  if (spec.method == QuantizationMethod::kLlmInt8 && spec.bits != 8) {
    return Invalid("bits", std::to_string(spec.bits), "8 for llm_int8");
  }
  if (spec.method == QuantizationMethod::kNf4 && spec.bits != 4) {
    return Invalid("bits", std::to_string(spec.bits), "4 for nf4");
  }
  if (spec.group_size != -1 && spec.group_size < 1) {
    return Invalid("group_size", std::to_string(spec.group_size),
                   "-1 (the whole row) or at least 1");
  }
  if (spec.order != QuantizationOrder::kNone && spec.order != QuantizationOrder::kStaticAct) {
    return Invalid("order", std::to_string(static_cast<int>(spec.order)), "kNone or kStaticAct");
  }
  if (!std::isfinite(spec.damp) || spec.damp < 0) {
    return Invalid("damp", Shortest(spec.damp), "finite and not negative");
  }
  if (!std::isfinite(spec.min_tokens_ratio) || spec.min_tokens_ratio < 0) {
    return Invalid("min_tokens_ratio", Shortest(spec.min_tokens_ratio), "finite and not negative");
  }
  if (std::find(std::begin(kScaleDtypes), std::end(kScaleDtypes), spec.scale_dtype) ==
      std::end(kScaleDtypes)) {
    return Invalid("scale_dtype", std::to_string(static_cast<int>(spec.scale_dtype)),
                   Names(kScaleDtypes));
  }
  if (spec.clip != ClipSearch::kNone && spec.clip != ClipSearch::kMse) {
    return Invalid("clip", std::to_string(static_cast<int>(spec.clip)), "kNone or kMse");
  }
  if (!std::isfinite(spec.outlier_threshold) || spec.outlier_threshold < 0) {
    return Invalid("outlier_threshold", Shortest(spec.outlier_threshold),
                   "finite and not negative");
  }
  return absl::OkStatus();
}

std::string Describe(const QuantizerSpec& spec) {
  std::string text = internal::StrCat(ToString(spec.method), " b", spec.bits);
  const QuantizerSpec usual;
  if (spec.method == QuantizationMethod::kLlmInt8) {
    text += internal::StrCat(" threshold ", Shortest(spec.outlier_threshold));
  } else if (spec.method == QuantizationMethod::kNf4) {
    text += internal::StrCat(" block 64");
  } else {
    text += internal::StrCat(" g", spec.group_size, spec.symmetric ? " sym" : " asym");
    if (spec.method == QuantizationMethod::kGptq) {
      text += internal::StrCat(spec.order == QuantizationOrder::kStaticAct ? " act" : " none",
                               " damp ", Shortest(spec.damp));
      // Named only where it is not the usual one, to keep the usual text short.
      if (spec.min_tokens_ratio != usual.min_tokens_ratio) {
        text += internal::StrCat(" min_tokens ", Shortest(spec.min_tokens_ratio));
      }
    }
    if (spec.clip == ClipSearch::kMse) text += internal::StrCat(" clip mse");
  }
  if (spec.scale_dtype != usual.scale_dtype) {
    text += internal::StrCat(" scale ", ToString(spec.scale_dtype));
  }
  return text;
}

}  // namespace ptqwatch
