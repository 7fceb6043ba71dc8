#ifndef PTQWATCH_TESTS_SUPPORT_FAKE_STATUS_SOURCE_H_
#define PTQWATCH_TESTS_SUPPORT_FAKE_STATUS_SOURCE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ptqwatch/exporter.h"

namespace ptqwatch::testing {

/// A StatusSource whose answers a test sets. Thread-safe.
class FakeStatusSource final : public StatusSource {
 public:
  explicit FakeStatusSource(std::string run_dir = "") {
    run_.run_id = "run-1";
    run_.fingerprint = "f00d";
    run_.device = "cpu";
    run_.run_dir = std::move(run_dir);
    status_.health = Health::kOk;
    status_.step = 16010;
  }
  const RunInfo& run() const override { return run_; }
  MonitorStatus status() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    MonitorStatus status = status_;
    for (const auto& [place, count] : drops_) {
      status.dropped_reports.push_back({place.first, place.second, count});
    }
    return status;
  }
  std::shared_ptr<const AnalyzedReport> latest() const override { return nullptr; }
  void CountDrop(std::string_view exporter, std::string_view reason) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++drops_[{std::string(exporter), std::string(reason)}];
  }

  template <typename Change>
  void Set(Change change) {
    std::lock_guard<std::mutex> lock(mutex_);
    change(status_);
  }
  int64_t drops(const std::string& exporter, const std::string& reason) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = drops_.find({exporter, reason});
    return found == drops_.end() ? 0 : found->second;
  }

 private:
  RunInfo run_;
  mutable std::mutex mutex_;
  MonitorStatus status_;
  std::map<std::pair<std::string, std::string>, int64_t> drops_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_FAKE_STATUS_SOURCE_H_
