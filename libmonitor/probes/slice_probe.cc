#include "probes/slice_probe.h"

#include <exception>
#include <memory>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/atomic_file.h"
#include "base/strings.h"
#include "c10/util/Exception.h"
#include "probes/replica_slice.h"

namespace ptqwatch::internal {
namespace {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = file->Append(text); !status.ok()) return status;
  return file->Commit();
}

}  // namespace

SliceProbe::SliceProbe(SliceDesk* desk, Measurement* measurement, std::string run_dir)
    : desk_(desk), measurement_(measurement), run_dir_(std::move(run_dir)) {
  if (run_dir_.empty()) {
    desk_->Close("MonitorOptions.run_dir is empty, so there is no place for its file");
    return;
  }
  if (measurement_->curvature() == nullptr || measurement_->curvature()->batches().empty()) {
    desk_->Close(
        "it is measured on the curvature batches, and MonitorOptions.curvature.enabled is false");
    return;
  }
  std::vector<SliceDesk::Quantizer> quantizers;
  for (const QuantizerSpec& spec : measurement_->quantizers()) {
    quantizers.push_back({std::string(ToString(spec.method)), spec.bits});
  }
  desk_->Open(std::move(quantizers));
}

void SliceProbe::Run(const Report& report, int64_t ordinal,
                     std::vector<std::vector<Replica::Override>> quantized, Announce announce,
                     const ExecutionContext& context) {
  if (!desk_->Wants(ordinal)) return previous_.clear();
  const SliceStatus status = desk_->status();
  const std::string name = ShortName(status.request.method, status.request.bits);
  absl::StatusOr<std::string> path;
  try {
    const bool too_early = report.step < status.request.at_step.value_or(INT64_MIN);
    if (report.probe_status != ProbeStatus::kOk) {
      // What is not the second snapshot yet can be another one.
      if (too_early) return;
      path = absl::FailedPreconditionError(StrCat(
          "the snapshot of step ", report.step, " was not measured: ", report.probe_status_detail));
    } else if (previous_.empty() || too_early) {
      KeepWeights(report.step);
      return desk_->KeptFirst();
    } else {
      announce(Severity::kInfo,
               StrCat("slice through steps ", previous_step_, " and ", report.step, " and ", name,
                      ": measuring ", status.request.points, " x ", status.request.points));
      desk_->Progress(0, SlicePoints(status.request.points));
      path = Make(report, std::move(quantized), status.request, context);
    }
  } catch (const c10::Error& error) {
    path = absl::InternalError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    path = absl::InternalError(error.what());
  } catch (...) {
    path = absl::InternalError("something that is no std::exception was thrown");
  }
  previous_.clear();
  if (path.ok()) {
    announce(Severity::kInfo, StrCat("slice written to ", *path));
    desk_->Done(*std::move(path));
  } else {
    const std::string error(path.status().message());
    announce(Severity::kWarning, StrCat("slice through ", name, " failed: ", error));
    desk_->Fail(error);
  }
}

void SliceProbe::KeepWeights(int64_t step) {
  at::NoGradGuard no_grad;
  previous_.clear();
  for (int entry : FloatingParameters(measurement_->replica())) {
    previous_.push_back({entry, measurement_->replica().loaded(entry).clone()});
  }
  previous_step_ = step;
}

absl::StatusOr<std::string> SliceProbe::Make(const Report& report,
                                             std::vector<std::vector<Replica::Override>> quantized,
                                             const SliceRequest& request,
                                             const ExecutionContext& context) {
  size_t chosen = 0;
  while (chosen < report.quantization.size() &&
         (ToString(report.quantization[chosen].method) != request.method ||
          report.quantization[chosen].bits != request.bits)) {
    ++chosen;
  }
  if (chosen >= quantized.size() || quantized[chosen].empty()) {
    return absl::FailedPreconditionError(StrCat(
        "there are no quantized weights of step ", report.step,
        chosen < report.quantization.size() ? ": " + report.quantization[chosen].status_detail
                                            : ""));
  }
  std::vector<Replica::Override> error = std::move(quantized[chosen]);
  quantized.clear();

  absl::StatusOr<LossSlice> slice = MeasureReplicaSlice(
      measurement_->replica(), measurement_->curvature()->batches(), std::exchange(previous_, {}),
      std::move(error), {.points = request.points},
      [&](int64_t done, int64_t all) { desk_->Progress(done, all); }, context);
  if (!slice.ok()) return slice.status();
  slice->run_id = report.run_id;
  slice->fingerprint = report.fingerprint;
  slice->step = report.step;
  slice->previous_step = previous_step_;
  slice->method = request.method;
  slice->bits = request.bits;
  slice->group_size = report.quantization[chosen].group_size;
  const std::string path = StrCat(run_dir_, "/slice-", report.step, ".json");
  if (absl::Status status = WriteFile(path, ToJson(*slice) + "\n"); !status.ok()) return status;
  return path;
}

}  // namespace ptqwatch::internal
