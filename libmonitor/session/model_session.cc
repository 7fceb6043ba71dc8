#include "session/model_session.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "session/batch_checks.h"
#include "session/curvature_batches.h"
#include "session/mean_batches.h"
#include "snapshot/batches.h"
#include "snapshot/finite.h"
#include "snapshot/generator_guard.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {
namespace {

// Pieces of a probe batch whose loss is one mean.
constexpr int64_t kPiecesOfMeanBatch = 8;
// Covers everything that is not reserved separately.
constexpr int64_t kSmallThings = 1 << 20;

absl::Status CheckSubjectHas(const Subject& subject, const ModelSessionOptions& options) {
  if (options.probe && subject.probe().empty()) {
    return absl::InvalidArgumentError("the subject has no probe batches (probe is empty)");
  }
  if (options.calibration && subject.calibration().empty()) {
    return absl::InvalidArgumentError("the subject has no calibration batches");
  }
  if (options.curvature && subject.curvature().empty() && subject.probe().empty()) {
    return absl::InvalidArgumentError("the subject has neither curvature nor probe batches");
  }
  return absl::OkStatus();
}

// Returns whether both lists have the same tensors.
bool AreSame(const std::vector<Batch>& first, const std::vector<Batch>& second) {
  const auto same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [&](const Batch& a, const Batch& b) {
                      return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
                    });
}

// Sorts `tensors` into the order of those with the same names in `order`; others are the last ones.
void SortLike(const std::vector<NamedTensor>& order, std::vector<NamedTensor>& tensors) {
  std::map<std::string_view, size_t> place;
  for (const NamedTensor& named : order) place.emplace(named.name, place.size());
  const auto place_of = [&](const NamedTensor& named) {
    const auto found = place.find(named.name);
    return found == place.end() ? place.size() : found->second;
  };
  std::stable_sort(tensors.begin(), tensors.end(), [&](const NamedTensor& a, const NamedTensor& b) {
    return place_of(a) < place_of(b);
  });
}

// Counts a replica, whose parameters are wider than rounded ones.
int64_t ReplicaBytes(const TensorTable& live) {
  int64_t bytes = 0;
  for (const TensorEntry& entry : live.entries) {
    const at::ScalarType type = OriginalType(live, entry);
    bytes += entry.tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Open(
    Subject& subject, const ModelSessionOptions& options) {
  std::unique_ptr<ModelSession> session(new ModelSession(subject));
  const absl::Status built = Guard([&] { return session->Build(options); });
  if (absl::IsResourceExhausted(built) && session->budgets_.measuring != options.bytes) {
    return absl::ResourceExhaustedError(StrCat(
        "the memory of ", session->device_.device.str(), " that is free beside ",
        "MonitorOptions.device_reserve_bytes = ", options.device_reserve_bytes, ": ", built));
  }
  PTQWATCH_RETURN_IF_ERROR(built);
  return session;
}

absl::Status ModelSession::Build(const ModelSessionOptions& options) {
  at::NoGradGuard no_grad;
  PTQWATCH_RETURN_IF_ERROR(OwnDraws::Available());
  const GeneratorGuard generators;
  if (subject_.opened_) {
    return absl::FailedPreconditionError(
        "the subject was opened before; a subject serves one monitor or one offline call, so make "
        "another one from the same model");
  }
  PTQWATCH_RETURN_IF_ERROR(CheckSubjectHas(subject_, options));
  std::vector<NamedTensor> listed = options.live ? *options.live : subject_.LiveTensors();
  if (options.assembled_bytes > 0) {
    PTQWATCH_RETURN_IF_ERROR(subject_.BuildReplica());
    SortLike(subject_.ReplicaTensors(), listed);
  }
  PTQWATCH_ASSIGN_OR_RETURN(live_, MakeLiveTable(listed));
  live_.rounding = options.rounding;
  PTQWATCH_RETURN_IF_ERROR(ChooseDevice(options));
  MakeBudgets(options);
  if (options.require_finite) {
    if (const absl::Status status = CheckFinite(live_); !status.ok()) {
      return absl::FailedPreconditionError(StrCat("the live model is not finite: ", status));
    }
  }
  PTQWATCH_RETURN_IF_ERROR(ReserveBatches(options));
  PTQWATCH_RETURN_IF_ERROR(CopySubjectBatches(options));
  PTQWATCH_RETURN_IF_ERROR(BuildReplica(options));
  PTQWATCH_RETURN_IF_ERROR(CheckBatches(options));
  const std::vector<Batch>& curvature = curvature_.empty() ? probe_ : curvature_;
  if (options.probe) {
    probe_ = CutMeanBatches(*replica_, probe_, kPiecesOfMeanBatch, options.max_check_seconds,
                            Clock::Real());
    PTQWATCH_RETURN_IF_ERROR(CutProbeSets(options.further_probe_sets));
  }
  if (!probe_.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(const LossValues losses, replica_->Losses(probe_[0]));
    mean_losses_ = losses.values.dim() == 0;
    losses_a_sequence_ = LossesASequence(losses, probe_[0]);
  }
  if (options.capture) {
    PTQWATCH_ASSIGN_OR_RETURN(
        plan_, PlanCapture(*replica_, options.calibration ? calibration_ : curvature,
                           options.capture->layers, options.capture->max_gram_bytes));
  }
  if (options.curvature) PTQWATCH_RETURN_IF_ERROR(CutCurvatureBatches(*options.curvature));
  if (!options.probe) probe_ = {};
  return absl::OkStatus();
}

absl::Status ModelSession::BuildReplica(const ModelSessionOptions& options) {
  // The model's own tensors exist beside the replica's until Replica::Create has checked it. Later
  // a staged snapshot takes their place.
  const int64_t staged = live_.bytes() + options.assembled_bytes;
  PTQWATCH_RETURN_IF_ERROR(small_->Take(kSmallThings, "names, tables and queues"));
  PTQWATCH_RETURN_IF_ERROR(held_->Take(2 * ReplicaBytes(live_), "two copies of the model"));
  PTQWATCH_RETURN_IF_ERROR(staged_->Take(staged, "a staged copy of the model"));
  const std::vector<Batch>& curvature = curvature_.empty() ? probe_ : curvature_;
  std::vector<const Batch*> checked;
  if (options.probe) checked.push_back(&probe_[0]);
  if (options.calibration) checked.push_back(&calibration_[0]);
  if (checked.empty()) checked.push_back(&curvature.at(0));
  subject_.opened_ = true;
  const std::vector<Batch>& first = options.probe         ? probe_
                                    : options.calibration ? calibration_
                                                          : curvature;
  PTQWATCH_ASSIGN_OR_RETURN(replica_,
                            Replica::Create(&subject_, live_, checked, device_.device, first));
  bytes_.replica = replica_->bytes();
  bytes_.small = kSmallThings;
  if (options.snapshots) {
    bytes_.staging = staged;
  } else {
    staged_->Return(staged);
  }
  int64_t largest_checked = 1;
  for (const Batch* batch : checked) {
    largest_checked = std::max(largest_checked, BytesOf({*batch}));
  }
  int64_t largest = largest_checked;
  for (const std::vector<Batch>* batches : {&probe_, &calibration_, &curvature_}) {
    for (const Batch& batch : *batches) largest = std::max(largest, BytesOf({batch}));
  }
  bytes_.forward =
      static_cast<int64_t>(static_cast<double>(replica_->forward_bytes()) *
                           static_cast<double>(largest) / static_cast<double>(largest_checked));
  return held_->Take(bytes_.forward, "evaluating a batch");
}

absl::Status ModelSession::CheckBatches(const ModelSessionOptions& options) {
  const std::vector<Batch>& first = options.probe         ? probe_
                                    : options.calibration ? calibration_
                                    : curvature_.empty()  ? probe_
                                                          : curvature_;
  PTQWATCH_RETURN_IF_ERROR(CheckIsNoSum(*replica_, first[0]));
  if (options.max_check_seconds <= 0) return absl::OkStatus();
  std::vector<CheckedBatches> kinds;
  if (options.probe) kinds.push_back({"probe", &probe_, 1});
  if (options.calibration &&
      !(options.probe && AreSame(subject_.probe(), subject_.calibration()))) {
    kinds.push_back({"calibration", &calibration_, 1});
  }
  kinds.push_back({"curvature", &curvature_});
  PTQWATCH_ASSIGN_OR_RETURN(
      unchecked_, CheckEachBatch(*replica_, kinds, options.max_check_seconds, Clock::Real()));
  return absl::OkStatus();
}

absl::Status ModelSession::ReserveBatches(const ModelSessionOptions& options) {
  if (options.probe || (options.curvature && subject_.curvature().empty())) {
    bytes_.batches += BytesOf(subject_.probe());
  }
  if (options.calibration) bytes_.batches += BytesOf(subject_.calibration());
  if (options.curvature) bytes_.batches += BytesOf(subject_.curvature());
  return held_->Take(bytes_.batches, "the batches");
}

absl::Status ModelSession::ChooseDevice(const ModelSessionOptions& options) {
  const at::Device live = live_.entries[0].tensor.device();
  const bool elsewhere = options.live.has_value();
  const LiveModel model_in_training{.device = elsewhere ? options.trainer_device : live,
                                    .parameters = live_.parameters(),
                                    .in_other_process = elsewhere};
  PTQWATCH_ASSIGN_OR_RETURN(
      device_, ChooseMonitorDevice(options.device, model_in_training, GpuEnvironment::OfProcess()));
  if (!options.snapshots) return absl::OkStatus();
  PTQWATCH_ASSIGN_OR_RETURN(
      stream_, DeviceStream::Create(live, device_.device,
                                    elsewhere ? std::nullopt : subject_.UpdateStream()));
  device_reserve_bytes_ = options.device_reserve_bytes;
  const int64_t model = live_.bytes();
  const bool here = device_.device == live;
  PTQWATCH_RETURN_IF_ERROR(
      CheckLeft(stream_->FreeBytesForCopies(), here ? 3 * model : model, "copies of the model"));
  return here ? absl::OkStatus() : CheckDeviceBytes(2 * ReplicaBytes(live_), "the replica");
}

QuantizeBackend& ModelSession::Backend(const BackendNeeds& needs) {
  if (backend_ == nullptr) {
    constexpr std::string_view kWhat = "quantizing on the device";
    backend_ = MakeBackend(replica_->device(), needs, [&](int64_t bytes) {
      PTQWATCH_RETURN_IF_ERROR(CheckDeviceBytes(bytes, kWhat));
      return held_->Take(bytes, kWhat);
    });
  }
  return *backend_;
}

void ModelSession::MakeBudgets(const ModelSessionOptions& options) {
  budgets_ = {options.bytes, options.bytes, options.bytes};
  max_device_bytes_ = options.max_device_bytes;
  if (options.bytes != nullptr && stream_ != nullptr) {
    if (stream_->FreeBytes()) budgets_.measuring = std::make_shared<ByteBudget>();
    if (const std::optional<int64_t> free = stream_->FreeBytesForCopies()) {
      budgets_.copies =
          live_.entries[0].tensor.device() == device_.device
              ? budgets_.measuring
              : std::make_shared<ByteBudget>(std::min(max_device_bytes_, Left(*free)));
    }
    FitDeviceBudget();
  }
  held_.emplace(budgets_.measuring);
  staged_.emplace(budgets_.copies);
  small_.emplace(budgets_.host);
}

int64_t ModelSession::Left(int64_t free) const {
  return std::max<int64_t>(0, free - device_reserve_bytes_);
}

void ModelSession::FitDeviceBudget() const {
  const std::optional<int64_t> free = stream_ == nullptr ? std::nullopt : stream_->FreeBytes();
  if (!free || budgets_.measuring == nullptr) return;
  ByteBudget& budget = *budgets_.measuring;
  // The device's allocator keeps memory that it once held, and later work can reuse it.
  budget.SetLimit(
      std::min(max_device_bytes_, std::max(budget.used() + Left(*free), budget.peak())));
}

absl::Status ModelSession::CheckDeviceBytes(int64_t bytes, std::string_view what) const {
  if (stream_ == nullptr) return absl::OkStatus();
  return CheckLeft(stream_->FreeBytes(), bytes, what);
}

absl::Status ModelSession::CheckLeft(std::optional<int64_t> free, int64_t bytes,
                                     std::string_view what) const {
  if (!free || bytes < *free - device_reserve_bytes_) return absl::OkStatus();
  const int64_t left = Left(*free);
  return absl::ResourceExhaustedError(
      StrFormat("%s would take %.1f MB of the GPU, and %.1f MB are left beside "
                "MonitorOptions.device_reserve_bytes = %d",
                what, 1e-6 * static_cast<double>(bytes), 1e-6 * static_cast<double>(left),
                device_reserve_bytes_));
}

absl::Status ModelSession::CopySubjectBatches(const ModelSessionOptions& options) {
  const at::Device device = device_.device;
  const bool own = !subject_.curvature().empty();
  if (options.probe || (options.curvature && !own)) {
    PTQWATCH_ASSIGN_OR_RETURN(probe_, CopyBatches(subject_.probe(), device, "probe"));
  }
  if (options.calibration) {
    PTQWATCH_ASSIGN_OR_RETURN(calibration_,
                              CopyBatches(subject_.calibration(), device, "calibration"));
  }
  if (options.curvature && own) {
    PTQWATCH_ASSIGN_OR_RETURN(curvature_, CopyBatches(subject_.curvature(), device, "curvature"));
  }
  return absl::OkStatus();
}

absl::Status ModelSession::CutProbeSets(int64_t further) {
  const int64_t batches = std::ssize(probe_);
  if (further >= batches) {
    return absl::InvalidArgumentError(StrCat("MonitorOptions.further_probe_sets = ", further,
                                             ": needs more probe batches than that, and there ",
                                             batches == 1 ? "is 1" : StrCat("are ", batches)));
  }
  const int64_t length = batches / (1 + further);
  auto next = probe_.begin() + (batches - further * length);
  for (int64_t set = 0; set < further; ++set, next += length) {
    further_probe_.emplace_back(next, next + length);
  }
  probe_.resize(static_cast<size_t>(batches - further * length));
  return absl::OkStatus();
}

absl::Status ModelSession::CutCurvatureBatches(const CurvatureBatchesRequest& request) {
  return Guard("cutting the curvature batches failed", absl::StatusCode::kFailedPrecondition,
               [&]() -> absl::Status {
                 if (curvature_.empty()) {
                   curvature_ = FirstSequences(*replica_, probe_,
                                               DefaultCurvatureSequences(losses_a_sequence_));
                 }
                 if (request.micro_batch > 0) {
                   PTQWATCH_ASSIGN_OR_RETURN(
                       curvature_, MicroBatches(*replica_, curvature_, request.micro_batch));
                 }
                 return absl::OkStatus();
               });
}

absl::Status ModelSession::Reload() {
  return Guard([&]() -> absl::Status {
    at::NoGradGuard no_grad;
    PTQWATCH_ASSIGN_OR_RETURN(const TensorTable live, MakeLiveTable(subject_.LiveTensors()));
    if (const absl::Status status = CheckSameLayout(live, replica_->table()); !status.ok()) {
      return absl::FailedPreconditionError(
          StrCat("the live model has other tensors than when it was opened: ", status));
    }
    std::vector<at::Tensor> tensors;
    for (const TensorEntry& entry : live.entries) tensors.push_back(entry.tensor);
    replica_->Load(tensors);
    return absl::OkStatus();
  });
}

}  // namespace ptqwatch::internal
