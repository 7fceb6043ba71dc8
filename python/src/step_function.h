#ifndef PTQWATCH_PYTHON_STEP_FUNCTION_H_
#define PTQWATCH_PYTHON_STEP_FUNCTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ptqwatch/step_info.h"
#include "pybind11/pybind11.h"
#include "python_subject.h"

namespace ptqwatch::python {

/// Mistakes in the calls of a step function. To be used with the lock of the interpreter.
struct StepMistakes {
  int64_t count = 0;
  std::string first;
  std::string Text() const;  ///< empty without any
};

/// Makes the function that a trainer calls after each optimizer step, step(step, lr, tokens=None,
/// loss=None), with names or without. It calls `take` with the interpreter's lock. Converting the
/// arguments takes a few hundred nanoseconds: a bound method of pybind11 takes 3 us with names.
///
/// `lr` is a number, a tensor of one element (one on a GPU is waited for), a list of these, of
/// which the largest counts, or None: unknown. `loss` is a number or a tensor of one element; one
/// on a GPU is left out, because reading it would wait for the GPU.
///
/// An argument of another kind ends no training: it counts as not given, a wrong `step` as no call;
/// the first is logged with its value.
pybind11::object StepFunction(std::function<void(const StepInfo&)> take,
                              std::shared_ptr<StepMistakes> mistakes);

/// One that calls `monitor->OnStep`.
template <typename Monitor>
pybind11::object StepFunction(std::shared_ptr<Monitor> monitor,
                              std::shared_ptr<StepMistakes> mistakes) {
  const auto take = [monitor = std::move(monitor)](const StepInfo& info) {
    const StepLock lock;
    monitor->OnStep(info);
  };
  return StepFunction(std::function<void(const StepInfo&)>(take), std::move(mistakes));
}

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_STEP_FUNCTION_H_
