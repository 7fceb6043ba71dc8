#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/guard.h"
#include "base/input_file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/followed_status.h"
#include "journal/journal_files.h"
#include "journal/journal_tail.h"
#include "journal/run_control.h"
#include "journal/status_file.h"
#include "ptqwatch/offline/follow_run.h"

namespace ptqwatch {
namespace {

using internal::FollowedStatus;
using internal::Guard;

constexpr std::chrono::milliseconds kStopFormer{500};

class RunFollowerImpl final : public RunFollower {
 public:
  RunFollowerImpl(std::string run_dir, MakeExporters make, Clock* clock)
      : run_dir_(std::move(run_dir)),
        make_(std::move(make)),
        clock_(clock),
        control_(run_dir_),
        status_(std::make_unique<FollowedStatus>(run_dir_, clock)),
        tail_(run_dir_, {.report = [this](AnalyzedReport report) { OnReport(std::move(report)); },
                         .event = [this](const Event& event) { OnEvent(event); },
                         .unreadable = [] {}}) {}
  ~RunFollowerImpl() override { Stop(std::chrono::seconds(2)); }

  bool Poll() override {
    if (stopped_) return false;
    bool more = false;
    const absl::Status read = Guard([&]() -> absl::Status {
      PTQWATCH_ASSIGN_OR_RETURN(more, tail_.Read());
      return absl::OkStatus();
    });
    if (!read.ok()) problem_(Severity::kWarning, internal::Message(read));
    ReadStatus();
    if (!more && !following_ && read.ok() && status_->known()) StartExporters();
    return more;
  }

  bool following() const override { return following_; }

  void Stop(std::chrono::milliseconds deadline) override {
    stopped_ = true;
    EndExporters(deadline);
  }

 private:
  void ReadStatus() {
    const absl::StatusOr<RunStatus> read = internal::ReadStatusFile(run_dir_);
    if (read.ok()) {
      status_->OnStatus(*read);
    } else if (!absl::IsNotFound(read.status())) {
      problem_(Severity::kWarning, internal::Message(read.status()));
    }
  }

  void OnReport(AnalyzedReport report) {
    const std::string& run_id = report.report.run_id;
    if (status_->latest() != nullptr && status_->latest()->report.run_id != run_id) BeginAnew();
    if (!EnsureExporters()) return;
    auto shared = std::make_shared<const AnalyzedReport>(std::move(report));
    status_->OnReport(shared);
    for (const auto& exporter : exporters_) exporter->OnReport(shared);
  }

  void OnEvent(const Event& event) {
    if (!EnsureExporters()) return;
    status_->OnEvent(event);
    for (const auto& exporter : exporters_) exporter->OnEvent(event);
  }

  bool EnsureExporters() {
    if (!exporters_.empty()) return true;
    auto made = Guard([&] { return make_(); });
    if (made.ok()) {
      exporters_ = *std::move(made);
      return true;
    }
    problem_(Severity::kError,
             internal::StrCat("run directory '", run_dir_, "' is not followed: ", made.status()));
    return false;
  }

  void StartExporters() {
    if (!EnsureExporters()) return;
    following_ = true;
    for (const auto& exporter : exporters_) {
      const absl::Status started = exporter->Start(status_.get(), &control_);
      if (started.ok()) continue;
      problem_(Severity::kError, internal::StrCat("run directory '", run_dir_, "', exporter ",
                                                  exporter->name(), ": ", started));
    }
  }

  void EndExporters(std::chrono::milliseconds deadline) {
    for (const auto& exporter : exporters_) exporter->Stop(deadline);
    exporters_.clear();
    following_ = false;
  }

  // Another run has taken the directory. Calls under way may still read the former's status.
  void BeginAnew() {
    EndExporters(kStopFormer);
    former_.push_back(std::move(status_));
    status_ = std::make_unique<FollowedStatus>(run_dir_, clock_);
  }

  const std::string run_dir_;
  const MakeExporters make_;
  Clock* const clock_;
  internal::RunControl control_;
  std::unique_ptr<FollowedStatus> status_;  // the exporters read it
  std::vector<std::unique_ptr<FollowedStatus>> former_;
  std::vector<std::unique_ptr<Exporter>> exporters_;
  internal::JournalTail tail_;
  internal::RateLimitedLog problem_;
  bool following_ = false;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<RunFollower> RunFollower::Create(std::string run_dir, MakeExporters exporters,
                                                 Clock* clock) {
  return std::make_unique<RunFollowerImpl>(std::move(run_dir), std::move(exporters), clock);
}

bool HoldsRun(const std::string& run_dir) {
  const auto is_there = [](const std::string& path) {
    return internal::InputFile::Open(path).ok();
  };
  if (is_there(internal::StrCat(run_dir, "/", internal::kStatusFileName))) return true;
  const auto paths = internal::JournalPaths(run_dir);
  return paths.ok() && std::any_of(paths->begin(), paths->end(), is_there);
}

}  // namespace ptqwatch
