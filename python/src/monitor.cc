#include "bindings.h"

namespace ptqwatch::python {

void BindMonitor(pybind11::module_&) {}

}  // namespace ptqwatch::python
