#ifndef PTQWATCH_GRPC_RUN_EXPORTER_H_
#define PTQWATCH_GRPC_RUN_EXPORTER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "ptqwatch/exporter.h"
#include "run_routes.h"

namespace ptqwatch::internal {

/// One run of a hub: serialises what is published, on the caller's thread, and hands it to the feed
/// of its route. What is published before Start is the past of the run. Thread-safe.
class RunExporter final : public Exporter {
 public:
  /// `routes` must outlive this.
  RunExporter(RunRoutes* routes, RunRoutes::Pointer route);
  ~RunExporter() override;

  std::string_view name() const override { return "grpc"; }
  absl::Status Start(StatusSource* source, Control* control) override;
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override;
  void OnEvent(const Event& event) override;
  /// Streams read what is left until the deadline.
  void Stop(std::chrono::milliseconds deadline) override;

  /// A report with this sequence is on its way to OnReport.
  void Announce(int64_t sequence) { route_->feed.Announce(sequence); }
  /// Accepts no more calls; what is published still reaches those who watch.
  void Refuse() { route_->feed.Refuse(); }

 private:
  class Serializer;
  RunRoutes* const routes_;
  const RunRoutes::Pointer route_;
  Mutex mutex_;
  const std::unique_ptr<Serializer> serializer_ ABSL_PT_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_RUN_EXPORTER_H_
