#ifndef PTQWATCH_PYTHON_STEP_FUNCTION_H_
#define PTQWATCH_PYTHON_STEP_FUNCTION_H_

#include <functional>

#include "ptqwatch/step_info.h"
#include "pybind11/pybind11.h"

namespace ptqwatch::python {

/// Makes the function that a trainer calls after each optimizer step, step(step, lr, tokens=None,
/// loss=None), with names or without. It calls `take` with the interpreter's lock. Converting the
/// arguments takes a few hundred nanoseconds: a bound method of pybind11 takes 3 us with names.
///
/// `loss` is a number or a tensor of one element. A tensor on a GPU is left out, because reading it
/// would wait for the GPU. TypeError and ValueError name the argument and its value; `take` is not
/// called then.
pybind11::object StepFunction(std::function<void(const StepInfo&)> take);

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_STEP_FUNCTION_H_
