#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "ptqwatch/quantizer.h"
#include "report/str_cat.h"

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

}  // namespace

std::string_view ToString(QuantizationMethod method) {
  switch (method) {
    case QuantizationMethod::kRtn:
      return "rtn";
    case QuantizationMethod::kGptq:
      return "gptq";
  }
  return "unknown";
}

absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name) {
  for (QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
    if (name == ToString(method)) return method;
  }
  return absl::InvalidArgumentError(
      internal::StrCat("unknown quantization method '", name, "'; known are rtn and gptq"));
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
  if (spec.method != QuantizationMethod::kRtn && spec.method != QuantizationMethod::kGptq) {
    return Invalid("method", std::to_string(static_cast<int>(spec.method)), "kRtn or kGptq");
  }
  if (spec.bits != 2 && spec.bits != 3 && spec.bits != 4 && spec.bits != 8) {
    return Invalid("bits", std::to_string(spec.bits), "2, 3, 4 or 8");
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
  return absl::OkStatus();
}

std::string Describe(const QuantizerSpec& spec) {
  std::string text = internal::StrCat(ToString(spec.method), " b", spec.bits, " g", spec.group_size,
                                      spec.symmetric ? " sym" : " asym");
  if (spec.method != QuantizationMethod::kGptq) return text;
  absl::StrAppend(&text, spec.order == QuantizationOrder::kStaticAct ? " act" : " none", " damp ",
                  Shortest(spec.damp));
  // Named only where it is not the usual one, to keep the usual text short.
  if (spec.min_tokens_ratio != QuantizerSpec{}.min_tokens_ratio) {
    absl::StrAppend(&text, " min_tokens ", Shortest(spec.min_tokens_ratio));
  }
  return text;
}

}  // namespace ptqwatch
