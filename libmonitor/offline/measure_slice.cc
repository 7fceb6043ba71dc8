#include "ptqwatch/offline/measure_slice.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "jobs/replica_slice.h"
#include "session/model_session.h"
#include "snapshot/replica.h"

namespace ptqwatch {
namespace {

using internal::ModelSession;
using internal::Replica;
using internal::StrCat;

absl::StatusOr<std::vector<Replica::Override>> ToOverrides(const Replica& replica,
                                                           const std::vector<int>& scope,
                                                           const std::vector<NamedTensor>& tensors,
                                                           std::string_view what) {
  const internal::TensorTable& table = replica.table();
  std::vector<Replica::Override> overrides;
  for (const NamedTensor& named : tensors) {
    const auto found = std::find(table.names.begin(), table.names.end(), named.name);
    const int entry = found == table.names.end()
                          ? -1
                          : table.index[static_cast<size_t>(found - table.names.begin())];
    if (std::find(scope.begin(), scope.end(), entry) == scope.end()) {
      return absl::InvalidArgumentError(
          StrCat(what, ": the model has no floating-point parameter '", named.name, "'"));
    }
    const int64_t elements = replica.loaded(entry).numel();
    if (!named.tensor.defined() || named.tensor.numel() != elements) {
      return absl::InvalidArgumentError(StrCat(what, ": '", named.name, "' has ",
                                               named.tensor.defined() ? named.tensor.numel() : 0,
                                               " elements, the model's ", elements));
    }
    overrides.push_back({entry, named.tensor.detach()});
  }
  return overrides;
}

absl::StatusOr<LossSlice> MeasureOrThrow(Subject& subject, const std::vector<NamedTensor>& previous,
                                         const std::vector<NamedTensor>& quantized,
                                         const LossSliceOptions& options,
                                         const ExecutionContext& context) {
  at::NoGradGuard no_grad;
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelSession> session,
      ModelSession::Open(
          subject, {.curvature = internal::CurvatureBatchesRequest{}, .bytes = context.bytes}));
  session->ReleaseLiveTensors();
  Replica& replica = session->replica();
  const std::vector<int> scope = internal::FloatingParameters(replica.table());
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<Replica::Override> to_previous,
                            ToOverrides(replica, scope, previous, "previous"));
  PTQWATCH_ASSIGN_OR_RETURN(std::vector<Replica::Override> to_quantized,
                            ToOverrides(replica, scope, quantized, "quantized"));
  return internal::MeasureReplicaSlice(
      replica, session->curvature(), std::move(to_previous), std::move(to_quantized),
      {.points = options.points, .margin = options.margin},
      [&](int64_t done, int64_t all) {
        if (options.progress) options.progress(done, all);
      },
      context);
}

}  // namespace

absl::StatusOr<LossSlice> MeasureLossSlice(Subject& subject,
                                           const std::vector<NamedTensor>& previous,
                                           const std::vector<NamedTensor>& quantized,
                                           const LossSliceOptions& options,
                                           const ExecutionContext& context) {
  return internal::Guard(
      [&] { return MeasureOrThrow(subject, previous, quantized, options, context); });
}

}  // namespace ptqwatch
