#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/enum_names.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "quantize/kernels/clip_rules.h"
#include "quantize/kernels/number_format.h"
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

// Catches values outside the enum, which a cast can make.
template <typename Enum>
absl::Status CheckNamed(std::string_view field, Enum value, EnumNames names) {
  if (static_cast<size_t>(value) < names.size()) return absl::OkStatus();
  return Invalid(field, std::to_string(static_cast<int>(value)), StrCat("one of ", ListOf(names)));
}

absl::Status CheckNotNegative(std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Invalid(field, Shortest(value), "finite and not negative");
}

// Indexed by the value of the enum.
constexpr std::string_view kOrders[] = {"none", "act"};
constexpr std::string_view kScaleDtypes[] = {"f32", "f16", "bf16"};
constexpr std::string_view kScaleRules[] = {"floor", "even", "rceil"};

template <typename Row>
const std::vector<std::string_view>* NamesOfRows(absl::Span<const Row> rows) {
  auto* names = new std::vector<std::string_view>;
  for (const Row& row : rows) names->push_back(row.name);
  return names;
}

const std::vector<std::string_view>& FormatNames() {
  static const auto* names = NamesOfRows(internal::NumberFormats());
  return *names;
}

const std::vector<std::string_view>& ClipNames() {
  static const auto* names = NamesOfRows(internal::ClipRules());
  return *names;
}

// Checks the fields that belong to the format.
absl::Status CheckFormat(const QuantizerSpec& spec) {
  PTQWATCH_RETURN_IF_ERROR(CheckNamed("format", spec.format, FormatNames()));
  PTQWATCH_RETURN_IF_ERROR(CheckNamed("scale_rule", spec.scale_rule, kScaleRules));
  const internal::NumberFormat& format = internal::NumbersOf(spec);
  if (format.bits != 0 && spec.bits != format.bits) {
    return Invalid("bits", std::to_string(spec.bits), StrCat(format.bits, " for ", format.name));
  }
  if (spec.group_rows != -1 && spec.group_rows < 1) {
    return Invalid("group_rows", std::to_string(spec.group_rows), "-1 (all rows) or at least 1");
  }
  if (spec.group_rows != 1 && (format.group_size > 0 || spec.clip != ClipSearch::kNone)) {
    return Invalid("group_rows", std::to_string(spec.group_rows),
                   format.group_size > 0 ? StrCat("1 for ", format.name) : "1 with clip");
  }
  if (spec.rotation != 0 && spec.rotation != 16 && spec.rotation != 32 && spec.rotation != 64 &&
      spec.rotation != 128) {
    return Invalid("rotation", std::to_string(spec.rotation), "0, 16, 32, 64 or 128");
  }
  if (internal::MethodOf(spec).formats) return absl::OkStatus();
  const std::string only = StrCat(" for ", ToString(spec.method));
  if (spec.format != QuantizationFormat::kInt) {
    return Invalid("format", format.name, StrCat("int", only));
  }
  if (spec.group_rows != 1) {
    return Invalid("group_rows", std::to_string(spec.group_rows), StrCat("1", only));
  }
  if (spec.rotation != 0) {
    return Invalid("rotation", std::to_string(spec.rotation), StrCat("0", only));
  }
  return absl::OkStatus();
}

// Says why the spec has no integer grid; empty if it has one.
std::string UnlessIntegers(const QuantizerSpec& spec) {
  const internal::NumberFormat& format = internal::NumbersOf(spec);
  if (!internal::MethodOf(spec).grid) return StrCat(" for ", ToString(spec.method));
  return format.is_float() ? StrCat(" for ", format.name) : "";
}

// Says why the spec has no symmetric integer grid.
std::string UnlessSymmetric(const QuantizerSpec& spec) {
  std::string unless = UnlessIntegers(spec);
  if (unless.empty() && !spec.symmetric) unless = " with symmetric false";
  return unless;
}

// Checks the fields that choose the scales of an integer grid, beside their type.
absl::Status CheckScales(const QuantizerSpec& spec) {
  PTQWATCH_RETURN_IF_ERROR(CheckNotNegative("min_scale", spec.min_scale));
  if (const std::string unless = UnlessIntegers(spec); spec.min_scale != 0 && !unless.empty()) {
    return Invalid("min_scale", Shortest(spec.min_scale), StrCat("0", unless));
  }
  if (!spec.round_scale_last) return absl::OkStatus();
  std::string unless = UnlessSymmetric(spec);
  if (spec.method != QuantizationMethod::kRtn) unless = StrCat(" for ", ToString(spec.method));
  if (unless.empty() && spec.clip == ClipSearch::kMse) unless = " for clip mse";
  if (unless.empty()) return absl::OkStatus();
  return Invalid("round_scale_last", "true", StrCat("false", unless));
}

// Checks the fields that choose the codes and the range of an integer grid.
absl::Status CheckRange(const QuantizerSpec& spec) {
  PTQWATCH_RETURN_IF_ERROR(CheckNamed("clip", spec.clip, ClipNames()));
  const internal::ClipRule& rule = internal::ClipRuleOf(spec);
  const std::string unless = UnlessSymmetric(spec);
  if (spec.narrow_range && !unless.empty()) {
    return Invalid("narrow_range", "true", StrCat("false", unless));
  }
  if (rule.limit == nullptr) {
    if (spec.clip_value == 0) return absl::OkStatus();
    return Invalid("clip_value", Shortest(spec.clip_value), StrCat("0 for clip ", rule.name));
  }
  if (!unless.empty()) return Invalid("clip", rule.name, StrCat("none or mse", unless));
  if (spec.clip_value > 0 && spec.clip_value <= rule.largest_value) return absl::OkStatus();
  const bool bounded = rule.largest_value < std::numeric_limits<double>::max();
  return Invalid("clip_value", Shortest(spec.clip_value),
                 StrCat(bounded ? StrCat("above 0 and at most ", rule.largest_value)
                                : std::string("finite and above 0"),
                        " for clip ", rule.name));
}

}  // namespace

std::string_view ToString(QuantizationOrder order) { return EnumName(kOrders, order); }
std::string_view ToString(ScaleDtype dtype) { return EnumName(kScaleDtypes, dtype); }
std::string_view ToString(ClipSearch clip) { return EnumName(ClipNames(), clip); }
std::string_view ToString(ScaleRule rule) { return EnumName(kScaleRules, rule); }
std::string_view ToString(QuantizationFormat format) { return EnumName(FormatNames(), format); }

absl::StatusOr<QuantizationOrder> ParseQuantizationOrder(std::string_view name) {
  return ParseEnum<QuantizationOrder>("quantization order", kOrders, name);
}
absl::StatusOr<ScaleDtype> ParseScaleDtype(std::string_view name) {
  return ParseEnum<ScaleDtype>("scale dtype", kScaleDtypes, name);
}
absl::StatusOr<ClipSearch> ParseClipSearch(std::string_view name) {
  return ParseEnum<ClipSearch>("clip search", ClipNames(), name);
}

absl::StatusOr<ScaleRule> ParseScaleRule(std::string_view name) {
  return ParseEnum<ScaleRule>("scale rule", kScaleRules, name);
}
absl::StatusOr<QuantizationFormat> ParseQuantizationFormat(std::string_view name) {
  return ParseEnum<QuantizationFormat>("quantization format", FormatNames(),
                                       name == "fp8" ? "fp8_e4m3" : name);
}

std::vector<QuantizerSpec> DefaultQuantizers() {
  using enum QuantizationMethod;
  return {{.method = kRtn, .bits = 3},
          {.method = kRtn, .bits = 4},
          {.method = kGptq, .bits = 3},
          {.method = kGptq, .bits = 4}};
}

std::optional<int> FixedBits(QuantizationMethod method) {
  const int bits = internal::MethodOf(method).bits;
  return bits == 0 ? std::nullopt : std::optional<int>(bits);
}

std::optional<int> FixedBits(QuantizationFormat format) {
  const int bits = internal::NumbersOf(format).bits;
  return bits == 0 ? std::nullopt : std::optional<int>(bits);
}

std::string FormatOf(const QuantizerSpec& spec) {
  std::string format(spec.format == QuantizationFormat::kInt ? FormatOf(spec.method)
                                                             : ToString(spec.format));
  if (spec.rotation != 0) format += StrCat("-h", spec.rotation);
  return format;
}

QuantizerKey KeyOf(const QuantizerSpec& spec) { return {spec.method, spec.bits, FormatOf(spec)}; }

absl::StatusOr<QuantizerSpec> ParseQuantizer(std::string_view name) {
  const auto unknown = [&] {
    return absl::InvalidArgumentError(
        StrCat("'", name, "' is not a quantizer such as gptq3, nf4 or gptq-nvfp4"));
  };
  QuantizerSpec spec{.bits = 0};
  const size_t dash = std::min(name.find('-'), name.size());
  std::string_view method = name.substr(0, dash);
  absl::StatusOr<QuantizationMethod> parsed = ParseQuantizationMethod(method);
  if (!parsed.ok()) {
    const size_t digits = method.find_last_not_of("0123456789") + 1;
    if (!absl::SimpleAtoi(std::string(method.substr(digits)), &spec.bits)) return unknown();
    parsed = ParseQuantizationMethod(method.substr(0, digits));
    if (!parsed.ok()) return unknown();
  }
  spec.method = *parsed;
  if (dash < name.size()) {
    std::string_view format = name.substr(dash + 1);
    if (const size_t rotation = format.rfind("-h"); rotation != std::string_view::npos) {
      if (!absl::SimpleAtoi(std::string(format.substr(rotation + 2)), &spec.rotation))
        return unknown();
      format = format.substr(0, rotation);
    }
    PTQWATCH_ASSIGN_OR_RETURN(spec.format, ParseQuantizationFormat(format));
  }
  if (spec.bits == 0) {
    const auto bits = FixedBits(spec.format);
    spec.bits = bits ? *bits : FixedBits(spec.method).value_or(0);
  }
  if (spec.bits == 0) return unknown();
  PTQWATCH_RETURN_IF_ERROR(Validate(spec));
  return spec;
}

bool NeedsStatistics(const QuantizerSpec& spec) {
  return internal::StatisticsOf(spec) > internal::Statistics::kGramIfAny;
}

absl::Status Validate(const QuantizerSpec& spec) {
  PTQWATCH_RETURN_IF_ERROR(CheckNamed("method", spec.method, NamesOf(spec.method)));
  const bool any = !FixedBits(spec.format);  // CheckFormat knows the others
  if (any && (spec.bits < 2 || spec.bits > 8)) {
    return Invalid("bits", std::to_string(spec.bits), "2 to 8");
  }
  if (const int bits = FixedBits(spec.method).value_or(spec.bits); bits != spec.bits) {
    return Invalid("bits", std::to_string(spec.bits), StrCat(bits, " for ", ToString(spec.method)));
  }
  if (spec.group_size != -1 && spec.group_size < 1) {
    return Invalid("group_size", std::to_string(spec.group_size),
                   "-1 (the whole row) or at least 1");
  }
  PTQWATCH_RETURN_IF_ERROR(CheckFormat(spec));
  PTQWATCH_RETURN_IF_ERROR(CheckNamed("order", spec.order, kOrders));
  PTQWATCH_RETURN_IF_ERROR(CheckNotNegative("damp", spec.damp));
  PTQWATCH_RETURN_IF_ERROR(CheckNotNegative("min_tokens_ratio", spec.min_tokens_ratio));
  PTQWATCH_RETURN_IF_ERROR(CheckNamed("scale_dtype", spec.scale_dtype, kScaleDtypes));
  PTQWATCH_RETURN_IF_ERROR(CheckRange(spec));
  PTQWATCH_RETURN_IF_ERROR(CheckScales(spec));
  return CheckNotNegative("outlier_threshold", spec.outlier_threshold);
}

std::string Describe(const QuantizerSpec& spec) {
  const QuantizerSpec defaults;
  const internal::Method& method = internal::MethodOf(spec);
  std::string text = StrCat(ToString(spec.method), " b", spec.bits);
  if (method.group_size > 0) text += StrCat(" block ", method.group_size);
  const internal::NumberFormat& format = internal::NumbersOf(spec);
  if (format.is_float()) {
    text += StrCat(" ", format.name);
    if (format.scale == internal::GroupScale::kE8m0) {
      text += StrCat(" ", ToString(spec.scale_rule));
    } else if (format.group_size == 0) {
      text += StrCat(" g", spec.group_size);
    }
  } else if (method.grid) {
    text += StrCat(" g", spec.group_size, spec.symmetric ? " sym" : " asym",
                   spec.narrow_range ? " narrow" : "");
  }
  if (spec.group_rows != 1) text += StrCat(" rows ", spec.group_rows);
  if (spec.rotation != 0) text += StrCat(" rotation ", spec.rotation);
  if (method.factor) {
    text += StrCat(" ", ToString(spec.order), " damp ", Shortest(spec.damp));
    // Omits the default, to keep the common text short and unchanged.
    if (spec.min_tokens_ratio != defaults.min_tokens_ratio) {
      text += StrCat(" min_tokens ", Shortest(spec.min_tokens_ratio));
    }
  }
  if (method.grid && spec.clip != ClipSearch::kNone) {
    text += StrCat(" clip ", ToString(spec.clip));
    if (spec.clip_value != 0) text += StrCat(" ", Shortest(spec.clip_value));
  }
  if (method.outliers) text += StrCat(" threshold ", Shortest(spec.outlier_threshold));
  if (spec.scale_dtype != defaults.scale_dtype) {
    text += StrCat(" scale ", ToString(spec.scale_dtype));
  }
  if (spec.round_scale_last) text += " last";
  if (spec.min_scale != 0) text += StrCat(" min_scale ", Shortest(spec.min_scale));
  return text;
}

}  // namespace ptqwatch
