#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/enum_names.h"
#include "base/strings.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {
namespace {

using internal::NamesOf;
using internal::ParseEnum;
using internal::StrCat;

std::string Shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return error == std::errc() ? std::string(buffer, end) : std::string("?");
}

absl::Status Invalid(std::string_view field, std::string_view value, std::string_view wanted) {
  return absl::InvalidArgumentError(
      StrCat("QuantizerSpec.", field, " is ", value, "; it must be ", wanted));
}

constexpr QuantizationMethod kMethods[] = {QuantizationMethod::kRtn, QuantizationMethod::kGptq,
                                           QuantizationMethod::kAwq, QuantizationMethod::kLlmInt8,
                                           QuantizationMethod::kNf4};
constexpr QuantizationOrder kOrders[] = {QuantizationOrder::kNone, QuantizationOrder::kStaticAct};
constexpr ScaleDtype kScaleDtypes[] = {ScaleDtype::kFloat32, ScaleDtype::kFloat16,
                                       ScaleDtype::kBFloat16};
constexpr ClipSearch kClipSearches[] = {ClipSearch::kNone, ClipSearch::kMse};
constexpr LayerStatus kLayerStatuses[] = {LayerStatus::kOk,           LayerStatus::kDamped,
                                          LayerStatus::kTooFewTokens, LayerStatus::kNonFinite,
                                          LayerStatus::kRtnFallback,  LayerStatus::kUnsupported};

template <typename Enum, size_t kCount>
bool Contains(const Enum (&values)[kCount], Enum value) {
  return std::find(std::begin(values), std::end(values), value) != std::end(values);
}

// Lower case, without '.', '_' and '-'.
std::string Plain(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == '.' || c == '_' || c == '-') continue;
    plain += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return plain;
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
      StrCat("unknown quantization method '", name, "'; known are ", NamesOf(kMethods)));
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
  return ParseEnum("scale dtype", kScaleDtypes, name);
}

std::string_view ToString(QuantizationOrder order) {
  switch (order) {
    case QuantizationOrder::kNone:
      return "none";
    case QuantizationOrder::kStaticAct:
      return "act";
  }
  return "unknown";
}

absl::StatusOr<QuantizationOrder> ParseQuantizationOrder(std::string_view name) {
  return ParseEnum("quantization order", kOrders, name);
}

std::string_view ToString(ClipSearch clip) {
  switch (clip) {
    case ClipSearch::kNone:
      return "none";
    case ClipSearch::kMse:
      return "mse";
  }
  return "unknown";
}

absl::StatusOr<ClipSearch> ParseClipSearch(std::string_view name) {
  return ParseEnum("clip search", kClipSearches, name);
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

absl::StatusOr<LayerStatus> ParseLayerStatus(std::string_view name) {
  return ParseEnum("layer status", kLayerStatuses, name);
}

std::vector<QuantizerSpec> DefaultQuantizers() {
  std::vector<QuantizerSpec> specs;
  for (const QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    for (const int bits : {3, 4}) {
      QuantizerSpec spec;
      spec.method = method;
      spec.bits = bits;
      specs.push_back(spec);
    }
  }
  return specs;
}

absl::Status Validate(const QuantizerSpec& spec) {
  if (!Contains(kMethods, spec.method)) {
    return Invalid("method", std::to_string(static_cast<int>(spec.method)), NamesOf(kMethods));
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
  if (!Contains(kOrders, spec.order)) {
    return Invalid("order", std::to_string(static_cast<int>(spec.order)), "kNone or kStaticAct");
  }
  if (!std::isfinite(spec.damp) || spec.damp < 0) {
    return Invalid("damp", Shortest(spec.damp), "finite and not negative");
  }
  if (!std::isfinite(spec.min_tokens_ratio) || spec.min_tokens_ratio < 0) {
    return Invalid("min_tokens_ratio", Shortest(spec.min_tokens_ratio), "finite and not negative");
  }
  if (!Contains(kScaleDtypes, spec.scale_dtype)) {
    return Invalid("scale_dtype", std::to_string(static_cast<int>(spec.scale_dtype)),
                   NamesOf(kScaleDtypes));
  }
  if (!Contains(kClipSearches, spec.clip)) {
    return Invalid("clip", std::to_string(static_cast<int>(spec.clip)), "kNone or kMse");
  }
  if (!std::isfinite(spec.outlier_threshold) || spec.outlier_threshold < 0) {
    return Invalid("outlier_threshold", Shortest(spec.outlier_threshold),
                   "finite and not negative");
  }
  return absl::OkStatus();
}

std::string Describe(const QuantizerSpec& spec) {
  const QuantizerSpec defaults;
  std::string text = StrCat(ToString(spec.method), " b", spec.bits);
  if (spec.method == QuantizationMethod::kLlmInt8) {
    text += StrCat(" threshold ", Shortest(spec.outlier_threshold));
  } else if (spec.method == QuantizationMethod::kNf4) {
    text += StrCat(" block ", kNf4Block);
  } else {
    text += StrCat(" g", spec.group_size, spec.symmetric ? " sym" : " asym");
    if (spec.method == QuantizationMethod::kGptq) {
      text += StrCat(" ", ToString(spec.order), " damp ", Shortest(spec.damp));
      // Only where it differs from the default, to keep the common text short.
      if (spec.min_tokens_ratio != defaults.min_tokens_ratio) {
        text += StrCat(" min_tokens ", Shortest(spec.min_tokens_ratio));
      }
    }
    if (spec.clip == ClipSearch::kMse) text += " clip mse";
  }
  if (spec.scale_dtype != defaults.scale_dtype) {
    text += StrCat(" scale ", ToString(spec.scale_dtype));
  }
  return text;
}

}  // namespace ptqwatch
