#ifndef PTQWATCH_PYTHON_ERRORS_H_
#define PTQWATCH_PYTHON_ERRORS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
/// Returns its value, or raises like RaiseIfError.
template <typename Work>
auto WithoutGil(Work&& work) {
  auto result = [&] {
    const pybind11::gil_scoped_release released;
    return work();
  }();
  return ValueOrRaise(std::move(result));
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_ERRORS_H_
