#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "base/enum_names.h"
#include "base/strings.h"
#include "ptqwatch/quantizer.h"
#include "quantize/methods.h"
#include "report/enum_names.h"

namespace ptqwatch {
namespace {

using internal::EnumName;
using internal::EnumNames;
using internal::ListOf;
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

// The position is the value.
constexpr std::string_view kOrders[] = {"none", "act"};
constexpr std::string_view kScaleDtypes[] = {"f32", "f16", "bf16"};
constexpr std::string_view kClipSearches[] = {"none", "mse"};

// Whether a cast made a value that its enum does not have.
template <typename Enum>
bool HasName(EnumNames names, Enum value) {
  return static_cast<size_t>(value) < names.size();
}

}  // namespace

std::string_view ToString(QuantizationOrder order) { return EnumName(kOrders, order); }
std::string_view ToString(ScaleDtype dtype) { return EnumName(kScaleDtypes, dtype); }
std::string_view ToString(ClipSearch clip) { return EnumName(kClipSearches, clip); }

absl::StatusOr<QuantizationOrder> ParseQuantizationOrder(std::string_view name) {
  return ParseEnum<QuantizationOrder>("quantization order", kOrders, name);
}
absl::StatusOr<ScaleDtype> ParseScaleDtype(std::string_view name) {
  return ParseEnum<ScaleDtype>("scale dtype", kScaleDtypes, name);
}
absl::StatusOr<ClipSearch> ParseClipSearch(std::string_view name) {
  return ParseEnum<ClipSearch>("clip search", kClipSearches, name);
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
  const internal::Method* method = internal::FindMethod(spec.method);
  if (method == nullptr) {
    return Invalid("method", std::to_string(static_cast<int>(spec.method)),
                   ListOf(NamesOf(spec.method)));
  }
  if (spec.bits != 2 && spec.bits != 3 && spec.bits != 4 && spec.bits != 8) {
    return Invalid("bits", std::to_string(spec.bits), "2, 3, 4 or 8");
  }
  if (method->bits != 0 && spec.bits != method->bits) {
    return Invalid("bits", std::to_string(spec.bits),
                   StrCat(method->bits, " for ", ToString(spec.method)));
  }
  if (spec.group_size != -1 && spec.group_size < 1) {
    return Invalid("group_size", std::to_string(spec.group_size),
                   "-1 (the whole row) or at least 1");
  }
  if (!HasName(kOrders, spec.order)) {
    return Invalid("order", std::to_string(static_cast<int>(spec.order)), "kNone or kStaticAct");
  }
  if (!std::isfinite(spec.damp) || spec.damp < 0) {
    return Invalid("damp", Shortest(spec.damp), "finite and not negative");
  }
  if (!std::isfinite(spec.min_tokens_ratio) || spec.min_tokens_ratio < 0) {
    return Invalid("min_tokens_ratio", Shortest(spec.min_tokens_ratio), "finite and not negative");
  }
  if (!HasName(kScaleDtypes, spec.scale_dtype)) {
    return Invalid("scale_dtype", std::to_string(static_cast<int>(spec.scale_dtype)),
                   ListOf(kScaleDtypes));
  }
  if (!HasName(kClipSearches, spec.clip)) {
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
  const internal::Method& method = internal::MethodOf(spec);
  std::string text = StrCat(ToString(spec.method), " b", spec.bits);
  if (method.group_size > 0) text += StrCat(" block ", method.group_size);
  if (method.grid) text += StrCat(" g", spec.group_size, spec.symmetric ? " sym" : " asym");
  if (method.factor) {
    text += StrCat(" ", ToString(spec.order), " damp ", Shortest(spec.damp));
    // Only where it differs from the default, to keep the common text short.
    if (spec.min_tokens_ratio != defaults.min_tokens_ratio) {
      text += StrCat(" min_tokens ", Shortest(spec.min_tokens_ratio));
    }
  }
  if (method.grid && spec.clip == ClipSearch::kMse) text += " clip mse";
  if (method.outliers) text += StrCat(" threshold ", Shortest(spec.outlier_threshold));
  if (spec.scale_dtype != defaults.scale_dtype) {
    text += StrCat(" scale ", ToString(spec.scale_dtype));
  }
  return text;
}

}  // namespace ptqwatch
