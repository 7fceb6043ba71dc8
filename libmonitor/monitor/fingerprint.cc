#include "monitor/fingerprint.h"

#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "ptqwatch/offline/loss_curvature.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {
namespace {

void AddLayout(const at::Tensor& tensor, Digest& digest) {
  digest.Add(ShapeText(tensor));
  digest.Add(std::string_view(at::toString(tensor.scalar_type())));
}

void AddBatches(const std::vector<Batch>& batches, Digest& digest) {
  digest.Add(static_cast<int64_t>(batches.size()));
  for (const Batch& batch : batches) {
    for (const at::Tensor& tensor : batch) {
      if (!tensor.defined()) continue;
      AddLayout(tensor, digest);
      const at::Tensor host = tensor.detach().cpu().contiguous();
      digest.AddBytes(host.const_data_ptr(), host.nbytes());
    }
  }
}

void AddCurvature(const CurvatureOptions& options, Digest& digest) {
  const CurvatureEngineOptions engine;
  digest.Add(StrFormat("%d %d %a %d %a %d", options.scope, engine.mode,
                       options.eigenvalue_residual_ratio, engine.max_eigenvalue_products,
                       options.trace_relative_stderr, engine.max_trace_probes));
  for (const std::string& glob : options.parameters) digest.Add(glob);
  digest.Add(StrFormat("%d %d %d", options.top_eigenvalues, options.bottom_eigenvalue,
                       engine.max_vector_bytes));
}

}  // namespace

std::string FingerprintOf(const ModelSession& session, const MonitorOptions& options) {
  Digest digest;
  const TensorTable& table = session.replica().table();
  for (size_t i = 0; i < table.names.size(); ++i) {
    digest.Add(table.names[i]);
    AddLayout(table.entries[static_cast<size_t>(table.index[i])].tensor, digest);
    digest.Add(int64_t{table.index[i]});
  }
  if (!options.snapshot_dtype.empty()) digest.Add(std::string_view(options.snapshot_dtype));
  AddBatches(session.probe(), digest);
  for (const std::vector<Batch>& set : session.further_probe()) AddBatches(set, digest);
  AddBatches(session.calibration(), digest);
  AddBatches(session.curvature(), digest);
  if (options.curvature.enabled) AddCurvature(options.curvature, digest);
  for (const CoveredLayer& layer : session.plan().layers) {
    digest.Add(layer.name);
    for (const QuantizerSpec& spec : options.quantizers) {
      const QuantizerSpec& own = SpecForLayer(options.overrides, spec, layer.name);
      digest.Add(Describe(own));
      // Its numbers are in the series of another name then.
      if (KeyOf(own) != KeyOf(spec)) digest.Add(ShortName(KeyOf(spec)));
    }
  }
  // Excludes averaging, mixed_precision and noise: they add to a report, which tells the noise's
  // norm, but change no other number in it.
  digest.Add(ToString(options.calibration_mode));
  digest.Add(StrFormat("%a %a %d", options.relative_stderr, options.absolute_stderr_ratio,
                       options.max_probe_tokens));
  digest.Add(static_cast<int64_t>(options.seed));
  return digest.Hex();
}

}  // namespace ptqwatch::internal
