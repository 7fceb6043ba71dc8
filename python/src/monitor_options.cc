#include "monitor_options.h"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "base/strings.h"
#include "count_members.h"
#include "option_fields.h"
#include "ptqwatch/report.h"
#include "python_call.h"
#include "quantizer_spec.h"

namespace ptqwatch::python {
namespace {

namespace py = pybind11;
using internal::StrCat;

template <typename T>
concept Record = requires(T& record) {
  VisitFields(record, [](const char*, auto&) {});
};

// Whether option_fields.h lists every member but `left_out` of them.
template <Record Fields>
consteval bool ListsAll(int left_out = 0) {
  return CountListed<Fields>([](auto& record, auto visit) { VisitFields(record, visit); }) +
             left_out ==
         CountMembers<Fields>();
}
static_assert(ListsAll<ScheduleOptions>());
static_assert(ListsAll<LayerSelection>());
static_assert(ListsAll<CurvatureOptions>());
static_assert(ListsAll<AveragingOptions>());
static_assert(ListsAll<CooldownOptions>());
static_assert(ListsAll<ServerSecurity>());
static_assert(ListsAll<ServeOptions>());
// Left out: the clock, and `process`, which watch() chooses by its mode.
static_assert(ListsAll<MonitorOptions>(/*left_out=*/2), "add the option to option_fields.h");

absl::StatusOr<OnFailure> ParseOnFailure(std::string_view name) {
  if (name == "inert") return OnFailure::kInert;
  if (name == "error") return OnFailure::kError;
  return absl::InvalidArgumentError(StrCat("unknown policy '", name, "'; known: inert, error"));
}

template <typename Enum>
absl::StatusOr<Enum> ParseEnum(std::string_view name) {
  if constexpr (std::is_same_v<Enum, OnFailure>) return ParseOnFailure(name);
  if constexpr (std::is_same_v<Enum, CalibrationMode>) return ParseCalibrationMode(name);
  if constexpr (std::is_same_v<Enum, CurvatureScope>) return ParseCurvatureScope(name);
  if constexpr (std::is_same_v<Enum, DecayShape>) return ParseDecayShape(name);
}

// A value of an option, and the option's name for messages.
class OptionValue {
 public:
  OptionValue(py::handle object, std::string name) : object_(object), name_(std::move(name)) {}

  void To(bool& field) const {
    if (!py::isinstance<py::bool_>(object_)) WrongType("True or False");
    field = object_.cast<bool>();
  }

  template <std::integral Integer>
  void To(Integer& field) const {
    if (py::isinstance<py::bool_>(object_) || PyIndex_Check(object_.ptr()) == 0) {
      WrongType("an integer");
    }
    try {
      field = object_.cast<Integer>();
    } catch (const py::cast_error&) {
      throw py::value_error(StrCat(Is(), ": must be an integer from ",
                                   std::numeric_limits<Integer>::min(), " to ",
                                   std::numeric_limits<Integer>::max()));
    }
  }

  void To(double& field) const { field = Number(object_); }

  void To(std::string& field) const {
    const py::object text = py::hasattr(object_, "__fspath__")
                                ? py::object(object_.attr("__fspath__")())
                                : py::reinterpret_borrow<py::object>(object_);
    if (!py::isinstance<py::str>(text)) WrongType("a string");
    try {
      field = text.cast<std::string>();
    } catch (const py::cast_error&) {
      throw py::value_error(StrCat(Is(), ": must be text that UTF-8 can encode"));
    }
    if (field.find('\0') != std::string::npos) {
      throw py::value_error(StrCat(Is(), ": must not have a null character"));
    }
  }

  template <typename Enum>
  requires std::is_enum_v<Enum>
  void To(Enum& field) const {
    std::string name;
    To(name);
    field = Parsed(ParseEnum<Enum>(name));
  }

  template <typename Period>
  void To(std::chrono::duration<int64_t, Period>& field) const {
    const double seconds =
        Number(py::hasattr(object_, "total_seconds") ? py::object(object_.attr("total_seconds")())
                                                     : py::reinterpret_borrow<py::object>(object_));
    constexpr double kMostSeconds = 1e9;
    if (!(seconds >= -kMostSeconds && seconds <= kMostSeconds)) {
      throw py::value_error(StrCat(Is(), ": must be a number of seconds, at most 1e9"));
    }
    field = std::chrono::round<std::chrono::duration<int64_t, Period>>(
        std::chrono::duration<double>(seconds));
  }

  template <typename T>
  void To(std::optional<T>& field) const {
    if (object_.is_none()) {
      field.reset();
    } else {
      To(field.emplace());
    }
  }

  void To(std::optional<ServeOptions>& field) const {
    field.reset();
    if (object_.is_none() || object_.is(py::bool_(false))) return;
    field.emplace();
    if (object_.is(py::bool_(true))) return;
    if (!py::isinstance<py::dict>(object_)) WrongType("True, False or a dict");
    To(*field);
  }

  template <typename T>
  void To(std::vector<T>& field) const {
    ToList(field);
  }

  void To(std::vector<QuantizerSpec>& field) const {
    if (!py::isinstance<py::str>(object_)) return ToList(field);
    field.clear();
    for (const py::handle name : object_.attr("split")(",")) {
      OptionValue(name.attr("strip")(), name_).To(field.emplace_back());
    }
  }

  template <typename T>
  void To(std::vector<std::pair<std::string, T>>& field) const {
    field.clear();
    for (const auto& [pair, name] : Tuples(2, "a pair")) {
      auto& [key, mapped] = field.emplace_back();
      OptionValue(pair[py::int_(0)], name + "[0]").To(key);
      OptionValue(pair[py::int_(1)], name + "[1]").To(mapped);
    }
  }

  void To(std::vector<SpecOverride>& field) const {
    field.clear();
    for (const auto& [value, name] : Tuples(3, "a pair, or a triple that ends with a short name")) {
      SpecOverride& given = field.emplace_back();
      OptionValue(value[py::int_(0)], name + "[0]").To(given.layers);
      OptionValue(value[py::int_(1)], name + "[1]").To(given.spec);
      if (py::len(value) == 3) OptionValue(value[py::int_(2)], name + "[2]").To(given.of);
    }
  }

  void To(QuantizerSpec& field) const { field = QuantizerSpecFrom(object_); }

  void To(std::function<void(const AnalyzedReport&)>& field) const {
    if (object_.is_none()) return;
    if (PyCallable_Check(object_.ptr()) == 0) WrongType("callable");
    field = [function = SharedObject(py::reinterpret_borrow<py::object>(object_))](
                const AnalyzedReport& report) {
      InPython([&] {
        const py::object as_dict = py::module_::import("json").attr("loads");
        Call(function.get(), py::make_tuple(as_dict(ToJson(report))));
      });
    };
  }

  template <Record Fields>
  void To(Fields& fields) const {
    if (!py::isinstance<py::dict>(object_)) WrongType("a dict");
    const auto dict = py::reinterpret_borrow<py::dict>(object_);
    std::vector<std::string_view> names;
    VisitFields(fields, [&](const char* name, auto& field) {
      names.push_back(name);
      if (dict.contains(name)) OptionValue(dict[name], Member(name)).To(field);
    });
    for (const auto& [key, value] : dict) {
      const std::string name = py::str(key).cast<std::string>();
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      throw py::type_error(StrCat("watch() has no option ", Member(name), " = ", Repr(value),
                                  "; the nearest is ", Member(internal::NearestName(name, names))));
    }
  }

 private:
  static std::string Repr(py::handle value) { return py::repr(value).cast<std::string>(); }
  // For example "watch(): max_overhead = 'a'".
  std::string Is() const { return StrCat("watch(): ", name_, " = ", Repr(object_)); }
  [[noreturn]] void WrongType(std::string_view expected) const {
    throw py::type_error(StrCat(Is(), ": must be ", expected));
  }
  double Number(const py::object& object) const {
    if (py::isinstance<py::bool_>(object) || PyNumber_Check(object.ptr()) == 0) {
      WrongType("a number");
    }
    return py::float_(object);
  }
  double Number(py::handle object) const {
    return Number(py::reinterpret_borrow<py::object>(object));
  }
  template <typename T>
  T Parsed(const absl::StatusOr<T>& parsed) const {
    if (!parsed.ok()) throw py::value_error(StrCat(Is(), ": ", parsed.status()));
    return *parsed;
  }
  // The items of a dict, or the elements of a list of sequences of two to `most` values.
  std::vector<std::pair<py::object, std::string>> Tuples(size_t most,
                                                         std::string_view expected) const {
    if (py::isinstance<py::dict>(object_)) {
      return OptionValue(py::list(object_.attr("items")()), name_).Tuples(most, expected);
    }
    if (!py::isinstance<py::sequence>(object_)) WrongType("a dict or a list of pairs");
    std::vector<std::pair<py::object, std::string>> elements = Elements();
    for (const auto& [value, name] : elements) {
      const size_t size = py::isinstance<py::sequence>(value) ? py::len(value) : 0;
      if (size < 2 || size > most) OptionValue(value, name).WrongType(expected);
    }
    return elements;
  }
  std::vector<std::pair<py::object, std::string>> Elements() const {
    std::vector<std::pair<py::object, std::string>> elements;
    for (const py::handle element : object_) {
      elements.emplace_back(py::reinterpret_borrow<py::object>(element),
                            StrCat(name_, "[", elements.size(), "]"));
    }
    return elements;
  }

  template <typename T>
  void ToList(std::vector<T>& field) const {
    field.clear();
    if (py::isinstance<py::str>(object_) || !py::isinstance<py::sequence>(object_)) {
      WrongType("a list");
    }
    for (const auto& [value, name] : Elements()) OptionValue(value, name).To(field.emplace_back());
  }
  // The name of a field of this option: "max_overhead", "curvature['scope']".
  std::string Member(std::string_view field) const {
    return name_.empty() ? std::string(field) : StrCat(name_, "['", field, "']");
  }

  const py::handle object_;
  const std::string name_;
};

}  // namespace

MonitorOptions OptionsFrom(const py::dict& fields) {
  MonitorOptions options;
  OptionValue(fields, "").To(options);
  return options;
}

}  // namespace ptqwatch::python
