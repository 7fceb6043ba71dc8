#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "engines.h"
#include "errors.h"
#include "ptqwatch/offline/loss_curvature.h"
#include "python_subject.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {
namespace {

/// All that one call measures.
struct Measured {
  double loss = 0;
  at::Tensor gradient;
  HessianSpectrum spectrum;
  std::optional<HessianTrace> trace;
};

absl::StatusOr<Measured> Measure(LossCurvature& curvature, bool trace,
                                 const ExecutionContext& context) {
  Measured measured;
  PTQWATCH_ASSIGN_OR_RETURN(measured.loss, curvature.Loss(context));
  PTQWATCH_ASSIGN_OR_RETURN(measured.gradient, curvature.Gradient(context));
  PTQWATCH_ASSIGN_OR_RETURN(measured.spectrum, curvature.Spectrum(context));
  if (trace) {
    PTQWATCH_ASSIGN_OR_RETURN(measured.trace, curvature.Trace(context));
  }
  return measured;
}

py::dict FieldsOf(const HessianEigenpair& pair) {
  py::dict fields;
  fields["value"] = pair.value;
  fields["bound"] = pair.bound;
  fields["residual_ratio"] = pair.residual_ratio;
  fields["converged"] = pair.converged;
  fields["products"] = pair.products;
  fields["method"] = std::string(ToString(pair.method));
  fields["vector"] = pair.vector;
  return fields;
}

py::list FieldsOf(const std::vector<HessianEigenpair>& pairs) {
  py::list list;
  for (const HessianEigenpair& pair : pairs) list.append(FieldsOf(pair));
  return list;
}

py::dict FieldsOf(const std::vector<BlockTrace>& blocks) {
  py::dict fields;
  for (const BlockTrace& block : blocks) {
    fields[py::str(block.name)] = py::make_tuple(block.trace, block.trace_stderr);
  }
  return fields;
}

py::dict FieldsOf(const HessianTrace& trace) {
  py::dict fields;
  fields["value"] = trace.trace;
  fields["stderr"] = trace.trace_stderr;
  fields["interval"] = trace.trace_interval;
  fields["batch_stderr"] = trace.trace_batch_stderr;
  fields["weighted"] = trace.weighted_trace;
  fields["weighted_stderr"] = trace.weighted_trace_stderr;
  fields["parameters"] = FieldsOf(trace.parameters);
  fields["layers"] = FieldsOf(trace.layers);
  fields["probes"] = trace.probes;
  fields["converged"] = trace.converged;
  fields["products"] = trace.products;
  return fields;
}

py::dict MeasureCurvature(Subject& subject, const CurvatureOptions& options,
                          const CurvatureEngineOptions& engine, bool trace, uint64_t seed) {
  ExecutionContext context;
  context.seeds = SeedSource(seed);
  std::unique_ptr<LossCurvature> curvature;
  const Measured measured =
      WithoutGil(context, [&](const ExecutionContext& own) -> absl::StatusOr<Measured> {
        PTQWATCH_ASSIGN_OR_RETURN(curvature, LossCurvature::Create(subject, options, engine, own));
        return Measure(*curvature, trace, own);
      });
  py::list parameters;
  for (const LossCurvature::Parameter& parameter : curvature->parameters()) {
    parameters.append(
        py::make_tuple(parameter.name, py::tuple(py::cast(parameter.sizes)), parameter.offset));
  }
  py::dict fields;
  fields["loss"] = measured.loss;
  fields["gradient"] = measured.gradient;
  fields["top"] = FieldsOf(measured.spectrum.top);
  fields["bottom"] = FieldsOf(measured.spectrum.bottom);
  fields["trace"] = measured.trace ? py::object(FieldsOf(*measured.trace)) : py::object(py::none());
  fields["mode"] = std::string(ToString(curvature->mode()));
  fields["mode_detail"] = curvature->mode_detail();
  fields["parameters"] = std::move(parameters);
  return fields;
}

}  // namespace

void BindCurvature(py::module_& module) {
  module.def(
      "curvature",
      [](const py::object& adapter, const std::vector<std::vector<at::Tensor>>& batches,
         const std::string& scope, std::vector<std::string> parameters, int top_eigenvalues,
         bool bottom_eigenvalue, double eigenvalue_residual_ratio, bool trace,
         double trace_relative_stderr, const std::string& mode, int64_t micro_batch,
         int max_eigenvalue_products, int max_trace_probes, uint64_t seed) {
        const CurvatureOptions options{
            .scope = ValueOrRaise(ParseCurvatureScope(scope)),
            .parameters = std::move(parameters),
            .eigenvalue_residual_ratio = eigenvalue_residual_ratio,
            .top_eigenvalues = top_eigenvalues,
            .bottom_eigenvalue = bottom_eigenvalue,
            .trace_relative_stderr = trace_relative_stderr,
        };
        const CurvatureEngineOptions engine{
            .mode = ValueOrRaise(ParseHessianMode(mode)),
            .micro_batch = micro_batch,
            .max_eigenvalue_products = max_eigenvalue_products,
            .max_trace_probes = max_trace_probes,
        };
        PythonSubject subject(adapter, batches, batches, batches);
        return MeasureCurvature(subject, options, engine, trace, seed);
      },
      py::kw_only(), py::arg("adapter"), py::arg("batches"), py::arg("scope"),
      py::arg("parameters"), py::arg("top_eigenvalues"), py::arg("bottom_eigenvalue"),
      py::arg("eigenvalue_residual_ratio"), py::arg("trace"), py::arg("trace_relative_stderr"),
      py::arg("mode"), py::arg("micro_batch"), py::arg("max_eigenvalue_products"),
      py::arg("max_trace_probes"), py::arg("seed"));
}

}  // namespace ptqwatch::python
