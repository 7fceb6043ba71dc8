#include "report/method_names.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/strings.h"
#include "ptqwatch/report.h"
#include "report/enum_names.h"

namespace ptqwatch {
namespace {

// The position is the value of QuantizationMethod.
constexpr internal::MethodName kBuiltInMethods[] = {
    {"rtn", "RTN"},           {"gptq", "GPTQ"},      {"awq", "AWQ"},
    {"llm_int8", "LLM.int8"}, {"nf4", "NF4", "nf4"},
};

struct MethodTable {
  std::vector<internal::MethodName> rows;
  std::vector<std::string_view> names;

  MethodTable() {
    for (const internal::MethodName& row : kBuiltInMethods) Add(row);
  }
  void Add(const internal::MethodName& row) {
    rows.push_back(row);
    names.push_back(row.name);
  }
};

MethodTable& KnownMethods() {
  static auto* table = new MethodTable;
  return *table;
}

const internal::MethodName* FindName(QuantizationMethod method) {
  const std::vector<internal::MethodName>& rows = KnownMethods().rows;
  const auto index = static_cast<size_t>(method);
  return index < rows.size() ? &rows[index] : nullptr;
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

bool SaysBits(std::string_view name) {
  return !name.empty() && absl::ascii_isdigit(static_cast<unsigned char>(name.back()));
}

}  // namespace

namespace internal {

EnumNames NamesOf(QuantizationMethod) { return KnownMethods().names; }

QuantizationMethod AddMethodName(const MethodName& name) {
  KnownMethods().Add(name);
  return static_cast<QuantizationMethod>(KnownMethods().rows.size() - 1);
}

}  // namespace internal

std::string_view ToString(QuantizationMethod method) {
  return internal::EnumName(KnownMethods().names, method);
}

absl::StatusOr<QuantizationMethod> ParseQuantizationMethod(std::string_view name) {
  const std::vector<std::string_view>& names = KnownMethods().names;
  const auto found = std::find_if(
      names.begin(), names.end(),
      [&, plain = Plain(name)](std::string_view known) { return Plain(known) == plain; });
  if (found == names.end()) return internal::UnknownName("quantization method", names, name);
  return static_cast<QuantizationMethod>(found - names.begin());
}

std::string_view FormatOf(QuantizationMethod method) {
  const internal::MethodName* row = FindName(method);
  return row == nullptr ? "unknown" : row->format;
}

std::string ShortName(std::string_view method, int bits) {
  return SaysBits(method) ? std::string(method) : internal::StrCat(method, bits);
}

std::string LabelOf(std::optional<QuantizationMethod> method, int bits) {
  const internal::MethodName* row = method ? FindName(*method) : nullptr;
  if (row == nullptr) return internal::StrCat(bits, " bits");
  return SaysBits(row->label) ? std::string(row->label)
                              : internal::StrCat(bits, "-bit ", row->label);
}

}  // namespace ptqwatch
