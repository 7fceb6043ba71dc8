#include "monitor/process_trainer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <tuple>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "snapshot/device_stream.h"

namespace ptqwatch::internal {
namespace {

// Copies tensors of any device to host memory, and waits until they are there: the other process
// has no stream to order its reads with. From a GPU at the bus's speed if the memory is pinned.
class ToHostStream final : public CpuStream {
 public:
  // `updates`: where the trainer queues its updates; nullopt: the current stream.
  explicit ToHostStream(std::optional<c10::Stream> updates) : updates_(updates) {}

  void Copy(const Tensors& destinations, const Tensors& sources) override {
    if (sources[0].is_cpu()) return CpuStream::Copy(destinations, sources);
    at::NoGradGuard no_grad;
    const c10::Device device = sources[0].device();
    const c10::impl::VirtualGuardImpl runtime(device.type());
    const c10::Stream stream = updates_.value_or(runtime.getStream(device));
    CheckNotCapturing(stream);
    const c10::StreamGuard guard(stream);
    for (size_t i = 0; i < sources.size(); ++i) {
      at::Tensor to = destinations[i];
      to.copy_(sources[i], /*non_blocking=*/true);
    }
    runtime.synchronizeStream(stream);
  }

 private:
  const std::optional<c10::Stream> updates_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessTrainer>> ProcessTrainer::Create(
    std::unique_ptr<Subject> subject, const MonitorOptions& options, Manifest manifest) {
  return Guard([&]() -> absl::StatusOr<std::unique_ptr<ProcessTrainer>> {
    const std::vector<NamedTensor> listed = subject->LiveTensors();
    const Parts parts = manifest.shard ? Parts::kAllowed : Parts::kRefused;
    PTQWATCH_ASSIGN_OR_RETURN(TensorTable live, MakeLiveTable(listed, parts));
    live.rounding = RoundingType(options.snapshot_dtype);
    if (manifest.shard && options.schedule.every_seconds > 0) {
      return absl::InvalidArgumentError(
          StrCat("MonitorOptions.schedule.every_seconds = ", options.schedule.every_seconds,
                 ": must be zero for a sharded model, because all ranks copy at the same steps"));
    }
    const TrainerOptions followed(options, manifest.shard.has_value());
    manifest.schedule = TextOf(options.schedule);
    manifest.device = live.entries[0].tensor.device().str();
    int64_t bytes = 0;
    std::tie(manifest.layout, bytes) = LayoutOf(live, listed);
    if (options.curvature.enabled) {
      PTQWATCH_ASSIGN_OR_RETURN(
          manifest.optimizer,
          SharedOptimizer::Place([&] { return subject->Optimizer(); }, live, bytes));
    }
    PTQWATCH_ASSIGN_OR_RETURN(
        SharedMemory memory,
        SharedMemory::Make(bytes, ToJson(manifest), followed.every(), followed.stretch()));
    std::unique_ptr<ProcessTrainer> trainer(
        new ProcessTrainer(std::move(subject), std::move(memory)));
    PTQWATCH_RETURN_IF_ERROR(trainer->Prepare(live, manifest, followed));
    return trainer;
  });
}

ProcessTrainer::ProcessTrainer(std::unique_ptr<Subject> subject, SharedMemory memory)
    : memory_(std::move(memory)),
      page_(memory_.page()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      subject_(std::move(subject)) {
  page_.switches.nothing_to_measure = true;  // until a worker is there
}

absl::Status ProcessTrainer::Prepare(const TensorTable& live, const Manifest& manifest,
                                     const TrainerOptions& options) {
  if (wake_ < 0) return absl::ResourceExhaustedError("no descriptor is left");
  optimizer_ = SharedOptimizer::In(memory_, manifest.optimizer);
  std::vector<at::Tensor> tensors(live.entries.size());
  std::vector<NamedTensor> shared = memory_.Tensors(manifest.layout);
  for (size_t i = 0; i < shared.size(); ++i) {
    tensors[static_cast<size_t>(live.index[i])] = std::move(shared[i].tensor);
  }
  slot_.emplace(&page_.slot, std::move(tensors));
  const auto stream = std::make_shared<ToHostStream>(subject_->UpdateStream());
  OptimizerStaging moments;
  if (optimizer_) {
    PTQWATCH_ASSIGN_OR_RETURN(
        moments, optimizer_->MakeStaging([this] { return subject_->Optimizer(); }, live, *stream));
  }
  filler_.emplace(live, &*slot_, stream, std::move(moments));
  if (optimizer_) {
    filler_->ShareOptimizer([this](const OptimizerState& state) { optimizer_->Write(state); });
  }
  side_.emplace(&page_, subject_.get(), &*filler_, options, [this] { WakeWorker(); });
  if (manifest.shard) {
    PTQWATCH_RETURN_IF_ERROR(address_.Publish(*manifest.shard, memory_.file()));
  }
  return absl::OkStatus();
}

ProcessTrainer::~ProcessTrainer() {
  if (wake_ >= 0) close(wake_);
}

void ProcessTrainer::WakeWorker() const noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void ProcessTrainer::ServeFinish() noexcept {
  if (!process_.here()) return;
  Page::LastStep& last = page_.last_step;
  const int64_t asked = last.asked.load(std::memory_order_acquire);
  if (asked == last.answered.load(std::memory_order_relaxed)) return;
  last.result.store(side_->TakeLast().result, std::memory_order_relaxed);
  last.answered.store(asked, std::memory_order_release);
}

std::optional<absl::Status> ProcessTrainer::FollowFinish() noexcept {
  ServeFinish();
  const Page::Answers& answers = page_.answers;
  const int64_t finished = answers.finished.load(std::memory_order_acquire);
  // The step tells a finish that this rank waits for from those that it has missed.
  if (answers.finished_step != page_.board.step() ||
      !TakeFinish(answers.finished_first, finished, followed_)) {
    return std::nullopt;
  }
  return absl::Status(answers.code.load(), answers.reason.data());
}

void ProcessTrainer::WorkerEnded() noexcept {
  TrainerSwitches& switches = page_.switches;
  switches.nothing_to_measure = true;
  switches.measuring = false;
  switches.busy = false;
  switches.rest_until_ns = 0;
}

}  // namespace ptqwatch::internal
