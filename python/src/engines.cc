#include "engines.h"

#include "bindings.h"

namespace ptqwatch::python {

void BindEngines(pybind11::module_& module) {
  BindQuantize(module);
  BindCurvature(module);
  BindRuns(module);
}

}  // namespace ptqwatch::python
