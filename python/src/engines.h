#ifndef PTQWATCH_PYTHON_ENGINES_H_
#define PTQWATCH_PYTHON_ENGINES_H_

#include "pybind11/pybind11.h"

namespace ptqwatch::python {

// The parts of BindEngines.
void BindQuantize(pybind11::module_& module);   ///< quantize.cc
void BindCurvature(pybind11::module_& module);  ///< curvature.cc
void BindRuns(pybind11::module_& module);       ///< runs.cc

}  // namespace ptqwatch::python

#endif  // PTQWATCH_PYTHON_ENGINES_H_
