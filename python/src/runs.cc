#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/strings.h"
#include "children/server_program.h"
#include "engines.h"
#include "errors.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/run_source.h"
#include "pybind11/stl.h"

namespace ptqwatch::python {
namespace {

namespace py = pybind11;

/// The reports of a run directory as JSON, oldest first.
std::vector<std::string> ReportsOf(const std::string& run_dir, bool layers) {
  return WithoutGil([&]() -> absl::StatusOr<std::vector<std::string>> {
    if (!HoldsRun(run_dir)) {
      return absl::NotFoundError(
          internal::StrCat("no run in '", run_dir, "': there is no journal and no status file"));
    }
    const auto reports = OpenRunDirectory(run_dir)->Reports({.without_layers = !layers});
    if (!reports.ok()) return reports.status();
    std::vector<std::string> lines;
    lines.reserve(reports->size());
    for (const AnalyzedReport& report : *reports) lines.push_back(ToJson(report));
    return lines;
  });
}

std::string NameOf(const std::string& method, int bits, const std::string& format) {
  const auto known = ParseQuantizationMethod(method);
  if (!known.ok()) return method;  // of a later version
  return ShortName({*known, bits, format.empty() ? std::string(FormatOf(*known)) : format});
}

/// The path of the program `ptqwatch`; None if there is none that may be run.
py::object Program() {
  const absl::StatusOr<std::string> path = internal::FindServerProgram("");
  return path.ok() ? py::object(py::str(*path)) : py::none();
}

}  // namespace

void BindRuns(py::module_& module) {
  module.def("read_run", &ReportsOf, py::arg("run_dir"), py::arg("layers"));
  module.def("short_name", &NameOf, py::arg("method"), py::arg("bits"), py::arg("format"));
  module.def("program", &Program);
}

}  // namespace ptqwatch::python
