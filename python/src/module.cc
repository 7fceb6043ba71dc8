#include "bindings.h"

PYBIND11_MODULE(_native, module) {
  module.doc() = "The compiled part of ptqwatch.";
  ptqwatch::python::BindEngines(module);
  ptqwatch::python::BindMonitor(module);
  ptqwatch::python::BindProcess(module);
}
