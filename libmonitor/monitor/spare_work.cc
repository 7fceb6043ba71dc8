#include "monitor/spare_work.h"

#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "base/strings.h"

namespace ptqwatch::internal {

void SpareWork::Announce(Event::Kind kind, Severity severity, std::string message) const {
  if (severity != Severity::kInfo) Log(severity, message);
  core_->publisher->PublishEvent(
      {kind, severity, cooldown_->step(), core_->clock->UnixSeconds(), std::move(message)});
}

void SpareWork::Run() noexcept {
  if (!under_way()) return;
  const absl::Status worked = Guard([&] {
    Work();
    return absl::OkStatus();
  });
  if (!worked.ok()) Log(Severity::kError, "a shadow cooldown was lost to an exception");
}

void SpareWork::Work() {
  if (!core_->budget->Begin(WorkBudget::Task::kJob)) {
    cooldown_->WaitForCore();
    if (std::exchange(waits_, true)) return;
    Announce(Event::Kind::kCooldown, Severity::kInfo,
             "the shadow cooldown waits for a spare core: on one that training uses it would cost "
             "more than MonitorOptions.max_overhead");
    return;
  }
  waits_ = false;
  ExecutionContext context = core_->context;
  context.hurry = SharedDeadline();  // Finish does not wait for it
  const absl::Status worked = Guard([&] {
    cooldown_->Advance(
        [this] {
          poll_();
          return core_->staging->filled() || !core_->budget->job_may_run();
        },
        {.announce = [this](Event::Kind kind, Severity severity,
                            std::string message) { Announce(kind, severity, std::move(message)); }},
        context);
    return absl::OkStatus();
  });
  DrainQuietly(*core_->suite->session().stream());
  if (!worked.ok()) cooldown_->Abandon(StrCat(worked));
  core_->budget->End();
}

void SpareWork::End() {
  if (cooldown_ != nullptr) cooldown_->Abandon("training has ended");
}

}  // namespace ptqwatch::internal
