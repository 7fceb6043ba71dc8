#ifndef PTQWATCH_PYTHON_PYTHON_CALL_H_
#define PTQWATCH_PYTHON_PYTHON_CALL_H_

#include <cxxabi.h>

#include <memory>
#include <utility>

#include "pybind11/pybind11.h"

// How the library's threads use Python. Once the interpreter ends, CPython ends every other thread
// that asks for its lock (pthread_exit before 3.14), which would unwind through functions that may
// not throw. Such threads stay here instead.

namespace ptqwatch::python {

/// From now on no thread of the library enters Python. REQUIRES: the caller holds the interpreter's
/// lock, and no monitor needs Python to stop.
void EndPython() noexcept;
bool PythonEnded() noexcept;
/// Sleeps until the process has ended.
[[noreturn]] void StayUntilProcessEnds() noexcept;

/// Sleeps for good if this is a thread of the library and Python has ended.
void StayIfPythonEnded() noexcept;

/// Calls `work` with the interpreter's lock, from any thread. Does not return on a thread of the
/// library if the interpreter ends.
template <typename Work>
auto InPython(Work&& work) {
  StayIfPythonEnded();
  try {
    const pybind11::gil_scoped_acquire lock;
    // PyTorch's engine leaves what a derivative in Python has raised, which C++ has caught.
    PyErr_Clear();
    return work();
  } catch (const abi::__forced_unwind&) {
    StayUntilProcessEnds();
  }
}

/// Calls `callable(*arguments)` and returns the result. Throws std::runtime_error with the
/// exception's type and message and the place that raised it, for every exception, SystemExit and
/// KeyboardInterrupt included. REQUIRES: the interpreter's lock.
pybind11::object Call(pybind11::handle callable,
                      const pybind11::tuple& arguments = pybind11::tuple());

/// A reference to a Python object that may be copied and dropped on any thread, without the lock.
/// Leaks once Python has ended.
class SharedObject {
 public:
  explicit SharedObject(pybind11::object object)
      : object_(new pybind11::object(std::move(object)), &SharedObject::Drop) {}
  /// REQUIRES: the interpreter's lock, to use it.
  const pybind11::object& get() const { return *object_; }

 private:
  static void Drop(pybind11::object* object) noexcept;
  std::shared_ptr<pybind11::object> object_;
};

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_PYTHON_CALL_H_
