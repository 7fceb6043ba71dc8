#include "python_call.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/strings.h"

namespace ptqwatch::python {
namespace {

namespace py = pybind11;

std::atomic<bool> python_ended{false};
// This thread is inside Python code called by CallOrStay.
thread_local bool in_call = false;
std::terminate_handler terminate_before = nullptr;

// An operator of torch takes the interpreter's lock again in a destructor. If the interpreter ends
// the thread there, C++ calls this.
[[noreturn]] void Terminate() {
  if (in_call) StayUntilProcessEnds();
  terminate_before();
  std::abort();
}

// For example " (train.py:12, in losses)": the place that raised the exception.
std::string PlaceOf(const py::error_already_set& error) {
  py::object trace = error.trace();
  if (!trace || trace.is_none()) return {};
  while (!trace.attr("tb_next").is_none()) trace = trace.attr("tb_next");
  const py::object code = trace.attr("tb_frame").attr("f_code");
  return internal::StrCat(" (", py::str(code.attr("co_filename")).cast<std::string>(), ":",
                          trace.attr("tb_lineno").cast<int64_t>(), ", in ",
                          py::str(code.attr("co_name")).cast<std::string>(), ")");
}

std::string TextOf(const py::error_already_set& error) {
  std::string text = py::str(error.type().attr("__name__")).cast<std::string>();
  try {
    const std::string message = py::str(error.value()).cast<std::string>();
    if (!message.empty()) text += ": " + message;
    // The library recognises this text.
    if (error.matches(PyExc_MemoryError)) text += ": out of memory";
    text += PlaceOf(error);
  } catch (py::error_already_set&) {  // raised by its own __str__
  }
  return text;
}

// Only pointers here: nothing is destroyed if the interpreter ends this thread inside the call.
PyObject* CallOrStay(PyObject* callable, PyObject* arguments) {
  const bool outer = std::exchange(in_call, gettid() != getpid());
  try {
    PyObject* result = PyObject_CallObject(callable, arguments);
    in_call = outer;
    return result;
  } catch (const abi::__forced_unwind&) {
    StayUntilProcessEnds();
  }
}

}  // namespace

void EndPython() noexcept {
  if (!python_ended.exchange(true)) terminate_before = std::set_terminate(&Terminate);
}

bool PythonEnded() noexcept { return python_ended.load(); }

void StayIfPythonEnded() noexcept {
  // The first thread of the process is the one that ends Python.
  if (PythonEnded() && gettid() != getpid()) StayUntilProcessEnds();
}

void StayUntilProcessEnds() noexcept {
  for (;;) pause();
}

py::object Call(py::handle callable, const py::tuple& arguments) {
  PyObject* result = CallOrStay(callable.ptr(), arguments.ptr());
  if (result != nullptr) return py::reinterpret_steal<py::object>(result);
  const py::error_already_set error;
  const std::string text = TextOf(error);
  // Ctrl-C on the trainer's thread is meant for the trainer: it is raised again as soon as that
  // thread is back in Python.
  if (error.matches(PyExc_KeyboardInterrupt) && gettid() == getpid()) PyErr_SetInterrupt();
  throw std::runtime_error(text);
}

void SharedObject::Drop(py::object* object) noexcept {
  if (PythonEnded()) return;
  InPython([object] { delete object; });
}

}  // namespace ptqwatch::python
