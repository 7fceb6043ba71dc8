#ifndef PTQWATCH_PYTHON_ERRORS_H_
#define PTQWATCH_PYTHON_ERRORS_H_

#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/execution_context.h"
#include "pybind11/pybind11.h"

namespace ptqwatch::python {

/// Raises an error in Python with the message of `status`: ValueError for InvalidArgument,
/// FileNotFoundError for NotFound, MemoryError for ResourceExhausted, RuntimeError for any other
/// code. Does nothing if OK. Call it with the GIL held.
inline void RaiseIfError(const absl::Status& status) {
  if (status.ok()) return;
  PyObject* const type = absl::IsInvalidArgument(status)     ? PyExc_ValueError
                         : absl::IsNotFound(status)          ? PyExc_FileNotFoundError
                         : absl::IsResourceExhausted(status) ? PyExc_MemoryError
                                                             : PyExc_RuntimeError;
  PyErr_SetString(type, std::string(status.message()).c_str());
  throw pybind11::error_already_set();
}

/// Returns the value, or raises like RaiseIfError.
template <typename T>
T ValueOrRaise(absl::StatusOr<T> result) {
  RaiseIfError(result.status());
  return *std::move(result);
}

/// Calls `work`, which returns an absl::StatusOr and must not touch Python, without the GIL.
/// Returns its value, or raises like RaiseIfError. What PyTorch's engine has left as raised, as it
/// does if a derivative in Python raises something that C++ catches, is forgotten.
template <typename Work>
auto WithoutGil(Work&& work) {
  auto result = [&] {
    const pybind11::gil_scoped_release released;
    return work();
  }();
  PyErr_Clear();
  return ValueOrRaise(std::move(result));
}

/// The same for long work, which is given the context. On Python's main thread, at most every 50
/// ms, Python handles the signals that have come: if a handler raises, as that of Ctrl-C does, the
/// work is cancelled and the handler's exception raised. REQUIRES: the context has no pacer.
template <typename Work>
auto WithoutGil(ExecutionContext context, Work&& work) {
  using std::chrono::nanoseconds, std::chrono::steady_clock;
  std::optional<pybind11::error_already_set> raised;
  if (gettid() == getpid()) {
    // Each checkpoint reads the time of a pacer. This one never sleeps.
    context.pacer = Pacer(1, context.clock, nanoseconds::max());
    const auto handle_signals = [&raised, cancel = context.cancel,
                                 due = steady_clock::now()]() mutable -> nanoseconds {
      const auto now = steady_clock::now();
      if (now >= due && !raised) {
        due = now + std::chrono::milliseconds(50);
        const pybind11::gil_scoped_acquire lock;
        if (PyErr_CheckSignals() != 0) raised.emplace();
        if (raised) cancel.Cancel();
      }
      return now.time_since_epoch();
    };
    context.pacer.CountBy(handle_signals);
  }
  auto result = [&] {
    const pybind11::gil_scoped_release released;
    return work(std::as_const(context));
  }();
  PyErr_Clear();
  if (raised) throw *std::move(raised);
  return ValueOrRaise(std::move(result));
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_ERRORS_H_
