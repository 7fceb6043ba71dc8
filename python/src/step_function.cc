#include "step_function.h"

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/strings.h"
#include "torch/csrc/autograd/python_variable.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {
namespace {

using internal::StrCat;

constexpr std::array<const char*, 4> kNames = {"step", "lr", "tokens", "loss"};
constexpr char kCapsule[] = "ptqwatch.step";
constexpr char kDoc[] = "step(step, lr, tokens=None, loss=None): call after each optimizer step";

using Take = std::function<void(const StepInfo&)>;
using Arguments = std::array<PyObject*, kNames.size()>;  // borrowed; null: not given

[[noreturn]] void WrongType(const char* name, PyObject* value, const char* expected) {
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
  const int64_t converted =
      PyLong_Check(value) != 0
          ? PyLong_AsLongLong(value)
          : PyLong_AsLongLong(py::reinterpret_steal<py::object>(PyNumber_Index(value)).ptr());
  if (converted == -1 && PyErr_Occurred() != nullptr) WrongType(name, value, "a 64-bit integer");
  return converted;
}

double Number(const char* name, PyObject* value) {
  const double converted = PyFloat_AsDouble(value);
  if (converted == -1 && PyErr_Occurred() != nullptr) WrongType(name, value, "a number");
  return converted;
}

std::optional<double> LossOf(PyObject* loss) {
  if (loss == nullptr || loss == Py_None) return std::nullopt;
  if (PyFloat_Check(loss) != 0 || !THPVariable_Check(loss)) return Number(kNames[3], loss);
  const at::Tensor& tensor = THPVariable_Unpack(loss);
  if (!tensor.device().is_cpu()) return std::nullopt;
  if (tensor.numel() != 1) {
    throw py::value_error(
        StrCat("step(): loss is a tensor of ", tensor.numel(), " elements; it must have one"));
  }
  return tensor.item<double>();
}

StepInfo InfoOf(const Arguments& arguments) {
  const auto& [step, lr, tokens, loss] = arguments;
  StepInfo info;
  info.step = Integer(kNames[0], step);
  info.learning_rate = Number(kNames[1], lr);
  if (tokens != nullptr && tokens != Py_None) info.tokens = Integer(kNames[2], tokens);
  info.loss = LossOf(loss);
  return info;
}

PyObject* Step(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  const auto* take = static_cast<const Take*>(PyCapsule_GetPointer(self, kCapsule));
  try {
    (*take)(InfoOf(Sorted(values, static_cast<size_t>(count), names)));
    Py_RETURN_NONE;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyMethodDef definition = {"step",
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Step)),
                          METH_FASTCALL | METH_KEYWORDS, kDoc};

}  // namespace

py::object StepFunction(Take take) {
  auto owned = std::make_unique<Take>(std::move(take));
  const py::capsule self(owned.get(), kCapsule, [](PyObject* capsule) {
    delete static_cast<Take*>(PyCapsule_GetPointer(capsule, kCapsule));
  });
  (void)owned.release();
  return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&definition, self.ptr(), nullptr));
}

}  // namespace ptqwatch::python
