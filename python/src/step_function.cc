#include "step_function.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "torch/csrc/autograd/python_variable.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {
namespace {

using internal::StrCat;

constexpr std::array<const char*, 4> kNames = {"step", "lr", "tokens", "loss"};
constexpr char kCapsule[] = "ptqwatch.step";
constexpr char kDoc[] = "step(step, lr, tokens=None, loss=None): call after each optimizer step";

using Arguments = std::array<PyObject*, kNames.size()>;  // borrowed; null: not given

// Passes on a KeyboardInterrupt, which Ctrl-C raises, and others that are no Exception.
[[noreturn]] void WrongType(const char* name, PyObject* value, const char* expected) {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) throw py::error_already_set();
  PyErr_Clear();
  throw py::type_error(
      StrCat("step(): ", name, " = ", py::repr(value).cast<std::string>(), ": must be ", expected));
}

// Python keeps the names of keyword arguments as one object each.
size_t PlaceOf(PyObject* name) {
  static const auto* interned = [] {
    auto* made = new std::array<PyObject*, kNames.size()>;
    for (size_t i = 0; i < kNames.size(); ++i) (*made)[i] = PyUnicode_InternFromString(kNames[i]);
    return made;
  }();
  for (size_t i = 0; i < kNames.size(); ++i) {
    if ((*interned)[i] == name) return i;
  }
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (PyUnicode_Compare((*interned)[i], name) == 0) return i;
  }
  throw py::type_error(StrCat("step() has no argument ", py::repr(name).cast<std::string>(),
                              "; it has step, lr, tokens and loss"));
}

Arguments Sorted(PyObject* const* values, size_t positional, PyObject* names) {
  if (positional > kNames.size()) {
    throw py::type_error(StrCat("step() has 4 arguments, and was given ", positional));
  }
  Arguments arguments = {};
  for (size_t i = 0; i < positional; ++i) arguments[i] = values[i];
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject*& argument = arguments[PlaceOf(PyTuple_GET_ITEM(names, i))];
    if (argument != nullptr) {
      throw py::type_error(StrCat("step() was given two values for ",
                                  py::str(PyTuple_GET_ITEM(names, i)).cast<std::string>()));
    }
    argument = values[positional + static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < 2; ++i) {
    if (arguments[i] == nullptr) throw py::type_error(StrCat("step() needs ", kNames[i]));
  }
  return arguments;
}

int64_t Integer(const char* name, PyObject* value) {
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(value));
  const int64_t converted = index ? PyLong_AsLongLong(index.ptr()) : -1;
  if (converted == -1 && PyErr_Occurred() != nullptr) WrongType(name, value, "a 64-bit integer");
  return converted;
}

double Number(const char* name, PyObject* value) {
  const double converted = PyFloat_AsDouble(value);
  if (converted == -1 && PyErr_Occurred() != nullptr) WrongType(name, value, "a number");
  return converted;
}

double NumberIn(const char* name, const at::Tensor& tensor) {
  if (tensor.numel() != 1) {
    throw py::value_error(StrCat("step(): ", name, " is a tensor of ", tensor.numel(),
                                 " elements; it must have one"));
  }
  return tensor.item<double>();
}

// A number, or a tensor of one element on any device.
double NumberOrTensor(const char* name, PyObject* value) {
  if (PyFloat_Check(value) != 0 || !THPVariable_Check(value)) return Number(name, value);
  return NumberIn(name, THPVariable_Unpack(value));
}

std::optional<double> LossOf(PyObject* loss) {
  if (loss == nullptr || loss == Py_None) return std::nullopt;
  const bool on_device = PyFloat_Check(loss) == 0 && THPVariable_Check(loss) &&
                         !THPVariable_Unpack(loss).device().is_cpu();
  if (on_device) return std::nullopt;
  return NumberOrTensor(kNames[3], loss);
}

// A filter of the log that raises ends no training.
void Warn(const std::string& text) {
  try {
    py::module_::import("logging").attr("getLogger")("ptqwatch").attr("warning")("%s", text);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
  }
}

class Stepper {
 public:
  Stepper(std::function<void(const StepInfo&)> take, std::shared_ptr<StepMistakes> mistakes)
      : take_(std::move(take)), mistakes_(std::move(mistakes)) {}

  // Takes a step without the arguments that cannot be used, or none without its number.
  void Step(PyObject* const* values, size_t positional, PyObject* names) {
    Arguments arguments = {};
    StepInfo info;
    if (!Use([&] {
          arguments = Sorted(values, positional, names);
          info.step = Integer(kNames[0], arguments[0]);
        })) {
      return;
    }
    const auto& [step, lr, tokens, loss] = arguments;
    Use([&, lr = lr] { info.learning_rate = Rate(lr); });
    Use([&, tokens = tokens] {
      if (tokens != nullptr && tokens != Py_None) info.tokens = Integer(kNames[2], tokens);
    });
    Use([&, loss = loss] { info.loss = LossOf(loss); });
    take_(info);
  }

 private:
  // False if `convert` raised an Exception: training goes on.
  template <typename Convert>
  bool Use(Convert convert) {
    try {
      convert();
      return true;
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;
      Note(error.what());
    } catch (const std::exception& error) {
      Note(error.what());
    }
    return false;
  }

  void Note(std::string_view text) {
    if (mistakes_->count++ > 0) return;
    mistakes_->first = std::string(text.substr(0, text.find('\n')));  // without Python's frames
    Warn(StrCat(mistakes_->first, "; training goes on, and this is not logged again"));
  }

  std::optional<double> Rate(PyObject* lr) {
    if (lr == Py_None) return std::nullopt;
    if (PyList_Check(lr) == 0 && PyTuple_Check(lr) == 0) return NumberOrTensor(kNames[1], lr);
    const auto rates = py::reinterpret_borrow<py::sequence>(lr);
    if (rates.empty()) throw py::value_error("step(): lr is an empty list");
    std::vector<double> values;
    for (const py::handle rate : rates) values.push_back(NumberOrTensor(kNames[1], rate.ptr()));
    for (const double value : values) {
      if (std::isnan(value)) return value;
    }
    const auto [smallest, highest] = std::minmax_element(values.begin(), values.end());
    const double least = *smallest, largest = *highest;
    if (least != largest && !std::exchange(told_, true)) {
      Warn(StrCat("step(): lr has ", rates.size(), " rates, ", least, " to ", largest,
                  ": the largest is taken"));
    }
    return largest;
  }

  const std::function<void(const StepInfo&)> take_;
  const std::shared_ptr<StepMistakes> mistakes_;
  bool told_ = false;
};

PyObject* Step(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  auto* stepper = static_cast<Stepper*>(PyCapsule_GetPointer(self, kCapsule));
  try {
    stepper->Step(values, static_cast<size_t>(count), names);
    Py_RETURN_NONE;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyMethodDef definition = {"step",
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Step)),
                          METH_FASTCALL | METH_KEYWORDS, kDoc};

}  // namespace

std::string StepMistakes::Text() const {
  return count == 0 ? "" : StrCat("arguments of ", count, " calls were wrong, first: ", first);
}

py::object StepFunction(std::function<void(const StepInfo&)> take,
                        std::shared_ptr<StepMistakes> mistakes) {
  auto owned = std::make_unique<Stepper>(std::move(take), std::move(mistakes));
  const py::capsule self(owned.get(), kCapsule, [](PyObject* capsule) {
    delete static_cast<Stepper*>(PyCapsule_GetPointer(capsule, kCapsule));
  });
  (void)owned.release();
  return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

}  // namespace ptqwatch::python
