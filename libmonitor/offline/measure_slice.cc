#include "ptqwatch/offline/measure_slice.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/strings.h"
#include "c10/util/Exception.h"
#include "probes/curvature_batches.h"
#include "probes/replica_slice.h"
#include "snapshot/batches.h"
#include "snapshot/replica.h"

namespace ptqwatch {
namespace {

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
  absl::StatusOr<internal::TensorTable> live = internal::MakeTensorTable(subject.LiveTensors());
  if (!live.ok()) return live.status();
  const std::vector<Batch>& chosen =
      subject.curvature().empty() ? subject.probe() : subject.curvature();
  if (chosen.empty()) {
    return absl::InvalidArgumentError("the subject has neither curvature nor probe batches");
  }
  absl::StatusOr<std::vector<Batch>> batches =
      internal::CopyBatches(chosen, live->entries[0].tensor.device(), "curvature");
  if (!batches.ok()) return batches.status();
  // It begins with the live weights.
  absl::StatusOr<std::unique_ptr<Replica>> replica =
      Replica::Create(&subject, *live, {&batches->front()});
  if (!replica.ok()) return replica.status();
  if (subject.curvature().empty()) {
    *batches = internal::FirstSequences(**replica, *batches, internal::kDefaultCurvatureSequences);
  }
  const std::vector<int> scope = internal::FloatingParameters(**replica);
  auto to_previous = ToOverrides(**replica, scope, previous, "previous");
  if (!to_previous.ok()) return to_previous.status();
  auto to_quantized = ToOverrides(**replica, scope, quantized, "quantized");
  if (!to_quantized.ok()) return to_quantized.status();
  return internal::MeasureReplicaSlice(
      **replica, *batches, *std::move(to_previous), *std::move(to_quantized),
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
  try {
    return MeasureOrThrow(subject, previous, quantized, options, context);
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return absl::InternalError(StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace ptqwatch
