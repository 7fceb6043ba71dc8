#ifndef PTQWATCH_PYTHON_BINDINGS_H_
#define PTQWATCH_PYTHON_BINDINGS_H_

#include "pybind11/pybind11.h"

namespace ptqwatch::python {

void BindEngines(pybind11::module_& module);  ///< quantizers and curvature as functions
void BindMonitor(pybind11::module_& module);  ///< a monitor on a thread of this process
void BindProcess(pybind11::module_& module);  ///< weights and steps shared with a worker process

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_BINDINGS_H_
