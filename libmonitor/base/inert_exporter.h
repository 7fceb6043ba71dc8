#ifndef PTQWATCH_BASE_INERT_EXPORTER_H_
#define PTQWATCH_BASE_INERT_EXPORTER_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ptqwatch/exporter.h"

namespace ptqwatch::internal {

/// What an exporter is that cannot listen: its Start says why, and the monitor leaves it out.
/// `Interface` is an exporter's public class, with an address().
template <typename Interface>
class InertExporter final : public Interface {
 public:
  /// `name` is a literal.
  InertExporter(std::string_view name, absl::Status why) : name_(name), why_(std::move(why)) {}

  std::string_view name() const override { return name_; }
  const std::string& address() const override { return no_address_; }
  absl::Status Start(StatusSource*, Control*) override { return why_; }
  void OnReport(std::shared_ptr<const AnalyzedReport>) override {}
  void Stop(std::chrono::milliseconds) override {}

 private:
  const std::string_view name_;
  const absl::Status why_;
  const std::string no_address_;
};

/// Whether an exporter whose Create fails so becomes an inert one. An option that can never work is
/// an error all the same, found when the program is first run.
inline bool BecomesInert(OnFailure on_failure, const absl::Status& status) {
  return on_failure == OnFailure::kInert && !absl::IsInvalidArgument(status);
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_BASE_INERT_EXPORTER_H_
