#include "journal/directory_status.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "base/host_name.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "journal/run_lock.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

// The status file is replaced every second, or less often if the machine or its disk is busy.
constexpr std::chrono::seconds kSilence{15};
// Limit for a file that has not changed since the first read; it allows for differing clocks of the
// two machines.
constexpr double kOldSeconds = 60;
// Time that another host, whose clock may differ by more than that, has to replace the file.
constexpr std::chrono::seconds kProofOfLife{5};

std::string UtcText(double unix_seconds) {
  const auto seconds = static_cast<time_t>(unix_seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  gmtime_r(&seconds, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

bool IsOver(Health health) { return health == Health::kStopped || health == Health::kInert; }

}  // namespace

DirectoryStatus::DirectoryStatus(std::string run_dir, Clock* clock) : clock_(clock) {
  run_.run_dir = std::move(run_dir);
}

void DirectoryStatus::OnStatus(const RunStatus& status) {
  if (newest_ && newest_->time_unix_seconds == status.time_unix_seconds) return;
  seen_changing_ = newest_.has_value();
  if (!newest_) first_age_ = clock_->UnixSeconds() - status.time_unix_seconds.value_or(0);
  newest_ = status;
  changed_ = clock_->Monotonic();
  const std::string run_dir = std::move(run_.run_dir);
  run_ = status.run;
  run_.run_dir = run_dir;
}

void DirectoryStatus::OnReport(std::shared_ptr<const AnalyzedReport> report) {
  latest_ = std::move(report);
  ++reports_;
  last_event_.reset();
  if (newest_) return;
  // The run has a journal but no status file.
  run_.run_id = latest_->report.run_id;
  run_.attempt = latest_->report.attempt;
  run_.fingerprint = latest_->report.fingerprint;
}

void DirectoryStatus::OnEvent(const Event& event) { last_event_ = event; }

bool DirectoryStatus::known() const { return newest_ || latest_ != nullptr || last_event_; }

std::chrono::duration<double> DirectoryStatus::Unchanged() const {
  return clock_->Monotonic() - changed_;
}

// Uses the time of day only for the first age: it may be set, and may differ from the clock of the
// machine of the run.
bool DirectoryStatus::FirstIsOld() const {
  if (seen_changing_) return false;
  if (IsOtherHost(newest_->host)) return std::abs(first_age_) > kOldSeconds;
  return Unchanged().count() + std::max(first_age_, 0.0) > kOldSeconds;
}

bool DirectoryStatus::undecided() const {
  return newest_ && IsOtherHost(newest_->host) && !IsOver(newest_->monitor.health) &&
         FirstIsOld() && Unchanged() < kProofOfLife;
}

bool DirectoryStatus::ended() const {
  return newest_ && (IsOver(newest_->monitor.health) || IsSilent());
}

bool DirectoryStatus::IsSilent() const {
  return Unchanged() > kSilence || (FirstIsOld() && !undecided());
}

MonitorStatus DirectoryStatus::FromStatusFile() const {
  MonitorStatus status = newest_->monitor;
  // The status file may be a second old and not count the newest report yet.
  if (latest_ != nullptr && latest_->report.run_id == newest_->run.run_id &&
      latest_->report.sequence > status.last_sequence) {
    status.last_sequence = latest_->report.sequence;
    status.step = std::max(status.step.value_or(0), latest_->report.step);
  }
  if (IsOver(status.health) || !IsSilent()) return status;
  status.busy = false;
  const bool elsewhere = IsOtherHost(newest_->host);
  if (!elsewhere && RunLock::IsHeld(run_.run_dir)) {
    status.health = Health::kDegraded;
    status.health_reason =
        StrCat("journal not written since ", UtcText(newest_->time_unix_seconds.value_or(0)),
               ": the disk of the run directory is full or hangs, or the process stands still");
    return status;
  }
  const double age = Unchanged().count() + (seen_changing_ ? 0 : std::max(first_age_, 0.0));
  status.health = Health::kSilent;
  status.health_reason = StrCat(
      "no sign of life for ", std::llround(age),
      " s: the process has ended without stopping its monitor, stands still, or its disk hangs",
      elsewhere ? StrCat(", on host ", Quoted(newest_->host)) : "");
  return status;
}

MonitorStatus DirectoryStatus::FromJournal() const {
  MonitorStatus status;
  status.reports_total = reports_;
  if (latest_ != nullptr) {
    const Report& report = latest_->report;
    status.step = report.step;
    status.last_step_unix_seconds = report.snapshot_time_unix_seconds;
    status.learning_rate = report.learning_rate;
    status.tokens = report.tokens;
    status.training_loss_nats = report.training_loss_nats;
    status.lr_phase = report.lr_phase;
    status.health = Health::kOk;
  }
  if (last_event_ && last_event_->kind == Event::Kind::kStopped) status.health = Health::kStopped;
  if (last_event_ && last_event_->kind == Event::Kind::kInert) {
    status.health = Health::kInert;
    status.health_reason = last_event_->message;
  }
  return status;
}

RunStatus DirectoryStatus::run_status() const {
  RunStatus status{.run = run_, .monitor = this->status()};
  if (!newest_) return status;
  status.version = newest_->version;
  status.process_id = newest_->process_id;
  status.host = newest_->host;
  status.time_unix_seconds = newest_->time_unix_seconds;
  return status;
}

MonitorStatus DirectoryStatus::status() const {
  MonitorStatus status = newest_ ? FromStatusFile() : FromJournal();
  // Status files of earlier versions have no last_sequence.
  if (latest_ != nullptr) {
    status.last_sequence = std::max(status.last_sequence, latest_->report.sequence);
  }
  return status;
}

}  // namespace ptqwatch::internal
