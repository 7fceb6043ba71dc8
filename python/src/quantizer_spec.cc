#include "quantizer_spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest_name.h"
#include "base/strings.h"
#include "count_members.h"
#include "errors.h"

namespace ptqwatch::python {
namespace {

namespace py = pybind11;
using internal::StrCat;

/// The one list of the fields: calls visit(name, member) or, for an enum, visit(name, member,
/// parser).
template <typename Visitor>
constexpr void VisitSpec(QuantizerSpec& spec, Visitor&& visit) {
  visit("method", spec.method, ParseQuantizationMethod);
  visit("bits", spec.bits);
  visit("format", spec.format, ParseQuantizationFormat);
  visit("scale_rule", spec.scale_rule, ParseScaleRule);
  visit("group_size", spec.group_size);
  visit("group_rows", spec.group_rows);
  visit("rotation", spec.rotation);
  visit("symmetric", spec.symmetric);
  visit("narrow_range", spec.narrow_range);
  visit("order", spec.order, ParseQuantizationOrder);
  visit("damp", spec.damp);
  visit("min_tokens_ratio", spec.min_tokens_ratio);
  visit("scale_dtype", spec.scale_dtype, ParseScaleDtype);
  visit("round_scale_last", spec.round_scale_last);
  visit("min_scale", spec.min_scale);
  visit("clip", spec.clip, ParseClipSearch);
  visit("clip_value", spec.clip_value);
  visit("outlier_threshold", spec.outlier_threshold);
  visit("baselines", spec.baselines);
}
static_assert(CountListed<QuantizerSpec>([](auto& spec, auto visit) { VisitSpec(spec, visit); }) ==
              CountMembers<QuantizerSpec>());

/// Sets the fields that the dict has.
class SpecReader {
 public:
  explicit SpecReader(const py::dict& fields) : fields_(fields) {}

  void operator()(const char* name, int& value) {
    if (const py::object given = Take(name); given) {
      const auto number = py::reinterpret_steal<py::object>(
          PyBool_Check(given.ptr()) ? nullptr : PyNumber_Index(given.ptr()));  // NumPy's ints too
      if (!number) {
        PyErr_Clear();
        WrongType(name, given, "an int");
      }
      int overflow = 0;
      const int64_t wide = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
      if (overflow != 0 || wide < INT32_MIN || wide > INT32_MAX) {
        throw py::value_error(StrCat(name, " is ", Repr(given), "; it is too large"));
      }
      value = static_cast<int>(wide);
    }
  }
  void operator()(const char* name, double& value) {
    if (const py::object given = Take(name); given) {
      if (!(PyFloat_Check(given.ptr()) || PyLong_Check(given.ptr())) || PyBool_Check(given.ptr())) {
        WrongType(name, given, "a float");
      }
      value = given.cast<double>();
    }
  }
  void operator()(const char* name, bool& value) {
    if (const py::object given = Take(name); given) {
      if (!PyBool_Check(given.ptr())) WrongType(name, given, "a bool");
      value = given.cast<bool>();
    }
  }
  template <typename Enum>
  void operator()(const char* name, Enum& value, absl::StatusOr<Enum> (*parse)(std::string_view)) {
    if (const py::object given = Take(name); given) {
      if (!PyUnicode_Check(given.ptr())) WrongType(name, given, "a str");
      value = ValueOrRaise(parse(given.cast<std::string>()));
    }
  }

  /// Raises TypeError if the dict has a field that is not in the list.
  void RefuseOthers() const {
    for (const auto& [key, value] : fields_) {
      const std::string name = py::str(key);
      bool known = false;
      for (const std::string_view field : names_) known |= field == name;
      if (known) continue;
      throw py::type_error(StrCat("a quantizer has no field '", name, "'; the nearest is '",
                                  internal::NearestName(name, names_), "'"));
    }
  }

 private:
  static std::string Repr(py::handle value) { return py::repr(value); }
  [[noreturn]] static void WrongType(const char* name, py::handle value, const char* expected) {
    throw py::type_error(StrCat(name, " is ", Repr(value), "; it must be ", expected));
  }
  // The value of a field; null if the dict does not have it.
  py::object Take(const char* name) {
    names_.push_back(name);
    return fields_.contains(name) ? py::object(fields_[name]) : py::object();
  }

  const py::dict& fields_;
  std::vector<std::string_view> names_;
};

}  // namespace

QuantizerSpec QuantizerSpecFrom(py::handle object) {
  if (py::isinstance<py::str>(object)) {
    return ValueOrRaise(ParseQuantizer(object.cast<std::string>()));
  }
  if (!py::isinstance<py::dict>(object)) {
    throw py::type_error(StrCat("a quantizer is ", std::string(py::repr(object)),
                                "; it must be a name such as 'gptq4', or a dict of fields"));
  }
  const auto fields = py::reinterpret_borrow<py::dict>(object);
  QuantizerSpec spec;
  SpecReader reader(fields);
  VisitSpec(spec, reader);
  reader.RefuseOthers();
  if (!fields.contains("bits")) {
    const auto bits = FixedBits(spec.format);
    spec.bits = bits ? *bits : FixedBits(spec.method).value_or(spec.bits);
  }
  RaiseIfError(Validate(spec));
  return spec;
}

}  // namespace ptqwatch::python
