#include "ptqwatch/prometheus_exporter.h"

#include <memory>
#include <string>
#include <utility>

#include "base/inert_exporter.h"
#include "base/status_macros.h"
#include "ptqwatch/prometheus_hub.h"

namespace ptqwatch {
namespace {

// A hub with one run.
class PrometheusExporterImpl final : public PrometheusExporter {
 public:
  PrometheusExporterImpl(std::unique_ptr<PrometheusHub> hub, std::unique_ptr<Exporter> run)
      : hub_(std::move(hub)), run_(std::move(run)) {}
  ~PrometheusExporterImpl() override { Stop(std::chrono::seconds(2)); }

  std::string_view name() const override { return "prometheus"; }
  const std::string& address() const override { return hub_->address(); }
  absl::Status Start(StatusSource* source, Control* control) override {
    return run_->Start(source, control);
  }
  void OnReport(std::shared_ptr<const AnalyzedReport> report) override {
    run_->OnReport(std::move(report));
  }
  void OnEvent(const Event& event) override { run_->OnEvent(event); }
  void Stop(std::chrono::milliseconds deadline) override {
    hub_->Stop();
    run_->Stop(deadline);
  }

 private:
  const std::unique_ptr<PrometheusHub> hub_;
  const std::unique_ptr<Exporter> run_;
};

absl::StatusOr<std::unique_ptr<PrometheusExporter>> Make(const PrometheusOptions& options) {
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<PrometheusHub> hub, PrometheusHub::Create(options));
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<Exporter> run, hub->AddRun(""));
  return std::make_unique<PrometheusExporterImpl>(std::move(hub), std::move(run));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrometheusExporter>> PrometheusExporter::Create(
    PrometheusOptions options) {
  absl::StatusOr<std::unique_ptr<PrometheusExporter>> exporter = Make(options);
  if (exporter.ok() || !internal::BecomesInert(options.on_failure, exporter.status())) {
    return exporter;
  }
  return std::make_unique<internal::InertExporter<PrometheusExporter>>("prometheus",
                                                                       exporter.status());
}

}  // namespace ptqwatch
