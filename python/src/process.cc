#include "bindings.h"

namespace ptqwatch::python {

void BindProcess(pybind11::module_&) {}

}  // namespace ptqwatch::python
