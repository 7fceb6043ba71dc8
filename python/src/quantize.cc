#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engines.h"
#include "errors.h"
#include "ptqwatch/offline/quantize_model.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/stored_size.h"
#include "python_subject.h"
#include "quantizer_spec.h"
#include "tensors.h"

namespace ptqwatch::python {
namespace {

MatrixView ViewOf(const at::Tensor& matrix) {
  TORCH_CHECK(matrix.dim() == 2 && matrix.scalar_type() == at::kFloat && matrix.is_cpu() &&
                  matrix.is_contiguous(),
              "expected a contiguous float32 matrix on the CPU");
  return {matrix.const_data_ptr<float>(), matrix.size(0), matrix.size(1)};
}

ExecutionContext ContextWith(int threads) {
  ExecutionContext context;
  context.threads = threads;
  return context;
}

py::object PartsOrNone(const std::optional<RoundingErrorParts>& parts) {
  if (!parts) return py::none();
  py::dict fields;
  fields["dead_zone"] = parts->dead_zone;
  fields["grid_noise"] = parts->grid_noise;
  fields["scale_bias"] = parts->scale_bias;
  return fields;
}

/// The fields of a QuantizedWeight for its dataclass in Python. An empty vector becomes None.
py::dict FieldsOf(QuantizedWeight&& weight, const QuantizerSpec& spec, int64_t rows, int64_t cols) {
  const auto grid = [&](std::vector<float>&& values) {
    if (values.empty()) return py::object(py::none());
    const auto size = static_cast<int64_t>(values.size());
    // NF4's blocks cross rows.
    return spec.method == QuantizationMethod::kNf4
               ? TensorOrNone(std::move(values), {size})
               : TensorOrNone(std::move(values), {rows, size / rows});
  };
  const auto list = [](auto&& values) {
    const auto size = static_cast<int64_t>(values.size());
    return TensorOrNone(std::move(values), {size});
  };
  py::dict fields;
  fields["quantizer"] = Describe(spec);
  fields["status"] = std::string(ToString(weight.status));
  fields["status_detail"] = std::move(weight.status_detail);
  fields["dequantized"] = TensorOrNone(std::move(weight.dequantized), {rows, cols});
  fields["codes"] = TensorOrNone(std::move(weight.codes), {rows, cols});
  fields["scale"] = grid(std::move(weight.scale));
  fields["zero"] = grid(std::move(weight.zero));
  fields["tensor_scale"] = weight.tensor_scale;
  fields["order"] = list(std::move(weight.order));
  fields["damp"] = weight.damp;
  fields["damp_value"] = weight.damp_value;
  fields["loss"] = weight.loss;
  fields["loss_damped"] = weight.loss_damped;
  fields["rtn_loss"] = weight.rtn_loss;
  fields["output_energy"] = weight.output_energy;
  fields["error_parts"] = PartsOrNone(weight.error_parts);
  fields["dead_columns"] = weight.dead_columns;
  fields["duplicate_columns"] = weight.duplicate_columns;
  fields["channel_scale"] = list(std::move(weight.channel_scale));
  fields["channel_scale_ratio"] = weight.channel_scale_ratio;
  fields["search_losses"] = list(std::move(weight.search_losses));
  fields["clipped_groups"] = weight.clipped_groups;
  fields["outlier_columns"] = list(std::move(weight.outlier_columns));
  return fields;
}

// None if the size was not asked for or the weight has no codes; the entropy also if all columns
// are kept.
void AddSize(const std::optional<StoredSize>& size, const char* bytes, py::dict& fields) {
  const bool known = size && size->codes > 0;
  fields["entropy_bits"] = known ? py::object(py::float_(size->EntropyBits())) : py::none();
  fields[bytes] = size ? py::object(py::int_(size->Bytes())) : py::none();
}

py::dict QuantizeMatrix(const at::Tensor& weight, const GramStatistics* gram, const py::dict& spec,
                        int threads, bool artifact_size) {
  const QuantizerSpec quantizer = QuantizerSpecFrom(spec);
  const MatrixView view = ViewOf(weight);
  std::optional<StoredSize> size;
  QuantizedWeight result = WithoutGil(ContextWith(threads), [&](const ExecutionContext& context) {
    absl::StatusOr<QuantizedWeight> quantized = Quantize(view, gram, quantizer, context);
    if (artifact_size && quantized.ok() && !quantized->codes.empty()) {
      size = StoredSizeOf(*quantized, quantizer, view.rows, view.cols);
    }
    return quantized;
  });
  py::dict fields = FieldsOf(std::move(result), quantizer, view.rows, view.cols);
  AddSize(size, "stored_bytes", fields);
  return fields;
}

py::dict FieldsOf(QuantizedLayer&& layer, const std::optional<StoredSize>& size) {
  py::dict fields;
  fields["name"] = std::move(layer.name);
  fields["shape"] = py::tuple(py::cast(layer.shape));
  fields["transposed"] = layer.transposed;
  fields["tokens"] = layer.tokens;
  fields["skipped_rows"] = layer.skipped_rows;
  py::dict matrix = FieldsOf(std::move(layer.weight), layer.spec, layer.outputs, layer.inputs);
  AddSize(size, "stored_bytes", matrix);
  fields["matrix"] = std::move(matrix);
  return fields;
}

py::dict QuantizeWholeModel(Subject& subject, const ModelQuantizationOptions& options, int threads,
                            bool artifact_size) {
  std::optional<StoredSize> size;
  std::vector<std::optional<StoredSize>> sizes;
  ModelQuantization result = WithoutGil(ContextWith(threads), [&](const ExecutionContext& context) {
    absl::StatusOr<ModelQuantization> model = QuantizeModel(subject, options, context);
    if (!model.ok()) return model;
    sizes.resize(model->layers.size());
    for (size_t i = 0; artifact_size && i < sizes.size(); ++i) {
      const QuantizedLayer& layer = model->layers[i];
      if (layer.weight.codes.empty()) continue;
      sizes[i] = StoredSizeOf(layer.weight, layer.spec, layer.outputs, layer.inputs);
    }
    if (artifact_size) size = StoredSizeOf(*model);
    return model;
  });
  py::list quantized;
  for (size_t i = 0; i < sizes.size(); ++i) {
    quantized.append(FieldsOf(std::move(result.layers[i]), sizes[i]));
  }
  py::dict skipped;
  for (const SkippedLayer& layer : result.skipped) skipped[py::str(layer.name)] = layer.reason;
  py::dict fields;
  fields["quantizer"] = Describe(options.spec);
  fields["layers"] = std::move(quantized);
  fields["skipped"] = std::move(skipped);
  fields["parameters"] = result.parameters;
  fields["covered_parameters"] = result.covered_parameters;
  fields["unseen"] = result.unseen ? result.unseen->ratio : 0.0;
  AddSize(size, "artifact_bytes", fields);
  return fields;
}

}  // namespace

void BindQuantize(py::module_& module) {
  using Gram = GramStatistics;
  py::class_<Gram, std::shared_ptr<Gram>>(module, "Gram")
      .def_readonly("inputs", &Gram::inputs)
      .def_readonly("tokens", &Gram::tokens)
      .def_readonly("skipped_rows", &Gram::skipped_rows)
      .def_property_readonly("sum", [](const std::shared_ptr<Gram>& gram) {
        return TensorOver(gram->sum, {gram->inputs, gram->inputs}, gram);
      });
  py::class_<GramAccumulator>(module, "GramAccumulator")
      .def(py::init<int64_t>())
      .def("add",
           [](GramAccumulator& gram, const at::Tensor& rows, int threads) {
             const MatrixView view = ViewOf(rows);
             WithoutGil(ContextWith(threads), [&](const ExecutionContext& context) {
               const absl::Status added = gram.Add(view, context);
               return added.ok() ? absl::StatusOr<bool>(true) : added;
             });
           })
      .def("take", [](GramAccumulator& gram) { return std::make_shared<Gram>(gram.Take()); });
  module.def("short_name", [](const py::object& quantizer) {
    return ShortName(KeyOf(QuantizerSpecFrom(quantizer)));
  });
  module.def("quantize", &QuantizeMatrix, py::arg("weight"), py::arg("gram").none(true),
             py::arg("spec"), py::arg("threads"), py::arg("artifact_size"));
  module.def(
      "quantize_model",
      [](const py::object& adapter, const std::vector<std::vector<at::Tensor>>& batches,
         const py::object& quantizer,
         const std::vector<std::tuple<std::string, py::object, std::string>>& overrides,
         std::vector<std::string> include, std::vector<std::string> exclude, bool output_head,
         bool routers, bool embeddings, const std::string& calibration_mode, int64_t max_gram_bytes,
         int threads, bool artifact_size) {
        ModelQuantizationOptions options{
            .spec = QuantizerSpecFrom(quantizer),
            .layers = {std::move(include), std::move(exclude), output_head, routers, embeddings},
            .calibration_mode = ValueOrRaise(ParseCalibrationMode(calibration_mode)),
            .max_gram_bytes = max_gram_bytes};
        for (const auto& [layers, spec, of] : overrides) {
          const QuantizerSpec given = QuantizerSpecFrom(spec);
          options.overrides.push_back({.layers = layers, .spec = given, .of = of});
        }
        PythonSubject subject(adapter, batches, batches, batches);
        return QuantizeWholeModel(subject, options, threads, artifact_size);
      },
      py::kw_only(), py::arg("adapter"), py::arg("batches"), py::arg("quantizer"),
      py::arg("overrides"), py::arg("include"), py::arg("exclude"), py::arg("output_head"),
      py::arg("routers"), py::arg("embeddings"), py::arg("calibration_mode"),
      py::arg("max_gram_bytes"), py::arg("threads"), py::arg("artifact_size"));
}

}  // namespace ptqwatch::python
