#include "monitor/process_trainer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "snapshot/device_stream.h"

namespace ptqwatch::internal {
namespace {

// Copies tensors of any device to host memory, and waits until they are there: the other process
// has no stream to order its reads with. From a GPU at the bus's speed if the memory is pinned.
class ToHostStream final : public CpuStream {
 public:
  void Copy(const Tensors& destinations, const Tensors& sources) override {
    if (sources[0].is_cpu()) return CpuStream::Copy(destinations, sources);
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < sources.size(); ++i) {
      at::Tensor to = destinations[i];
      to.copy_(sources[i], /*non_blocking=*/true);
    }
    const c10::Device device = sources[0].device();
    const c10::impl::VirtualGuardImpl runtime(device.type());
    runtime.synchronizeStream(runtime.getStream(device));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessTrainer>> ProcessTrainer::Create(
    std::unique_ptr<Subject> subject, const MonitorOptions& options) {
  return Guard([&]() -> absl::StatusOr<std::unique_ptr<ProcessTrainer>> {
    PTQWATCH_ASSIGN_OR_RETURN(const TensorTable live, MakeTensorTable(subject->LiveTensors()));
    auto [layout, bytes] = LayoutOf(live);
    OptimizerLayout optimizer;
    if (options.curvature.enabled) {
      PTQWATCH_ASSIGN_OR_RETURN(optimizer, SharedOptimizer::Place(*subject, live, bytes));
    }
    PTQWATCH_ASSIGN_OR_RETURN(SharedMemory memory,
                              SharedMemory::Make(bytes, options.schedule.every));
    SharedSlot slot{.state = &memory.page().slot};
    slot.tensors.resize(live.entries.size());
    std::vector<NamedTensor> tensors = memory.Tensors(layout);
    for (size_t i = 0; i < tensors.size(); ++i) {
      slot.tensors[static_cast<size_t>(live.index[i])] = std::move(tensors[i].tensor);
    }
    std::unique_ptr<ProcessTrainer> trainer(new ProcessTrainer(std::move(subject), options,
                                                               std::move(memory), std::move(layout),
                                                               std::move(optimizer), bytes));
    if (trainer->wake_ < 0) return absl::ResourceExhaustedError("no descriptor is left");
    const auto stream = std::make_shared<ToHostStream>();
    OptimizerStaging moments;
    if (trainer->optimizer_) {
      SharedOptimizer& shared = *trainer->optimizer_;
      PTQWATCH_ASSIGN_OR_RETURN(moments,
                                shared.MakeStaging(*trainer->core_.subject, live, *stream));
      slot.send = [&shared](const OptimizerState& state) { shared.Write(state); };
    }
    trainer->core_.staging =
        std::make_unique<Staging>(live, stream, std::move(moments), false, std::move(slot));
    return trainer;
  });
}

ProcessTrainer::ProcessTrainer(std::unique_ptr<Subject> subject, const MonitorOptions& options,
                               SharedMemory memory, std::vector<SharedTensor> layout,
                               OptimizerLayout optimizer, int64_t bytes)
    : memory_(std::move(memory)),
      page_(memory_.page()),
      layout_(std::move(layout)),
      optimizer_layout_(std::move(optimizer)),
      optimizer_(SharedOptimizer::In(memory_, optimizer_layout_)),
      bytes_(bytes),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      core_(options, std::move(subject), &page_.switches) {
  core_.phases.emplace(LrPhase::kUnknown);
  page_.switches.every = core_.own_switches.every.load();
  page_.switches.idle = true;  // until a worker is there
}

ProcessTrainer::~ProcessTrainer() {
  if (wake_ >= 0) close(wake_);
}

bool ProcessTrainer::HasRoom() const noexcept {
  const uint64_t used =
      page_.written.load(std::memory_order_relaxed) - page_.read.load(std::memory_order_acquire);
  return used < SharedPage::kRecords;
}

void ProcessTrainer::WakeWorker() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void ProcessTrainer::OnStep(const StepInfo& info) noexcept {
  if (!process_.here()) return;
  if (entered_.test_and_set(std::memory_order_acquire)) {
    ignored_total_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (HasRoom()) {
    Step(info);
  } else {
    ++ignored_;
    ignored_total_.fetch_add(1, std::memory_order_relaxed);
    unsent_ = info;
  }
  entered_.clear(std::memory_order_release);
}

void ProcessTrainer::Step(const StepInfo& info) noexcept {
  if (!side_) {
    const bool known = page_.lr_known.load(std::memory_order_acquire);
    side_.emplace(&core_, known ? page_.lr : LrTracker(), [] {});
  }
  const uint64_t written = page_.written.load(std::memory_order_relaxed);
  StepRecord& record = page_.records[written % SharedPage::kRecords];
  if (page_.switches.measuring.load(std::memory_order_relaxed) != core_.board.busy()) {
    core_.board.SetBusy(!core_.board.busy(), 0);
  }
  record = {info, side_->OnStep(info)};
  record.outcome.ignored = std::exchange(ignored_, 0);
  const bool taken = record.outcome.result == SnapshotResult::kTaken;
  if (taken) {
    page_.sent = record;
    page_.sent_number = page_.slot.taken.load();
  }
  unsent_.reset();
  page_.written.store(written + 1, std::memory_order_release);
  const uint64_t used = written + 1 - page_.read.load(std::memory_order_relaxed);
  if (taken || used == SharedPage::kRecords / 2) WakeWorker();
}

void ProcessTrainer::ServeFinish() noexcept {
  if (!process_.here() || entered_.test_and_set(std::memory_order_acquire)) return;
  if (unsent_ && HasRoom()) Step(StepInfo(*unsent_));
  const int64_t asked = page_.asked.load(std::memory_order_acquire);
  if (asked != page_.answered.load(std::memory_order_relaxed)) {
    const FillOutcome outcome = side_ && side_->last_step() ? side_->TakeLast() : FillOutcome();
    if (outcome.result == SnapshotResult::kTaken) {
      page_.sent.outcome.result.reset();
      page_.sent_number = page_.slot.taken.load();
    }
    page_.result.store(outcome.result, std::memory_order_relaxed);
    page_.stall_seconds.store(outcome.stall_seconds, std::memory_order_relaxed);
    page_.answered.store(asked, std::memory_order_release);
    WakeWorker();
  }
  entered_.clear(std::memory_order_release);
}

void ProcessTrainer::WorkerEnded() noexcept {
  TrainerSwitches& switches = page_.switches;
  switches.idle = true;
  switches.measuring = false;
  switches.rest_until_ns = 0;
}

std::optional<int64_t> ProcessTrainer::last_step() const {
  return side_ ? side_->last_step() : std::nullopt;
}

}  // namespace ptqwatch::internal
