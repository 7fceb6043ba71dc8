#include "bindings.h"

namespace ptqwatch::python {

void BindEngines(pybind11::module_&) {}

}  // namespace ptqwatch::python
