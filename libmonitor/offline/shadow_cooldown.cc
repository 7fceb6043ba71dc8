#include "ptqwatch/offline/shadow_cooldown.h"

#include <cmath>
#include <memory>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "jobs/cooldown_run.h"
#include "probes/curvature_probe.h"
#include "probes/probe_suite.h"
#include "ptqwatch/subject.h"
#include "session/model_session.h"
#include "session/trained_parameters.h"

namespace ptqwatch {
namespace {

using internal::CooldownRun;
using internal::CurvatureProbe;
using internal::ModelSession;
using internal::StrCat;

// Options of a monitor with the same measurements.
MonitorOptions AsMonitor(const ShadowCooldownOptions& options) {
  MonitorOptions monitor;
  monitor.cooldown = options.cooldown;
  monitor.quantizers = options.quantizers;
  monitor.layers = options.layers;
  monitor.calibration_mode = options.calibration_mode;
  monitor.curvature = options.curvature;
  monitor.seed = options.seed;
  return monitor;
}

absl::StatusOr<PredictedEnd> RunOrThrow(Subject& subject, const ShadowCooldownOptions& options,
                                        ExecutionContext context) {
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  if (!subject.CanTrainReplica()) {
    return absl::FailedPreconditionError(
        "the subject cannot train its replica: train_step is not set");
  }
  const MonitorOptions monitor = AsMonitor(options);
  context.seeds = SeedSource(options.seed);
  internal::ModelSessionOptions opened = internal::SessionOptions(monitor, {}, context.bytes);
  opened.snapshots = false;
  opened.require_finite = true;
  PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSession> session,
                            ModelSession::Open(subject, opened));
  std::unique_ptr<CurvatureProbe> curvature;
  if (options.curvature.enabled) {
    PTQWATCH_ASSIGN_OR_RETURN(curvature,
                              CurvatureProbe::Create(*session, options.curvature, {}, context));
  }
  const std::vector<int> trained = internal::TrainedParameters(*session);
  session->ReleaseLiveTensors();
  const internal::QuantizationMeasurement measurement(*session,
                                                      internal::QuantizationOptionsOf(monitor));
  internal::SnapshotPlace place;
  place.step = options.step;
  place.learning_rate = options.learning_rate;
  PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<CooldownRun> run,
                            CooldownRun::Begin({.session = *session,
                                                .measurement = measurement,
                                                .curvature = curvature.get(),
                                                .trained = trained,
                                                .options = options.cooldown},
                                               place, options.cooldown.decay_steps, context));
  const auto stop = [&] {
    if (options.progress) options.progress(run->steps_done(), run->steps_all());
    return false;
  };
  PTQWATCH_RETURN_IF_ERROR(run->Advance(stop, context).status());
  stop();
  return run->Result(absl::OkStatus());
}

}  // namespace

absl::Status Validate(const ShadowCooldownOptions& options) {
  const auto invalid = [](std::string_view field, const auto& value, std::string_view expected) {
    return absl::InvalidArgumentError(
        StrCat("ShadowCooldownOptions.", field, " = ", value, ": must be ", expected));
  };
  if (options.cooldown.decay_steps <= 0) {
    return invalid("cooldown.decay_steps", options.cooldown.decay_steps, "positive");
  }
  if (!(options.learning_rate > 0 && std::isfinite(options.learning_rate))) {
    return invalid("learning_rate", options.learning_rate, "positive");
  }
  return Validate(AsMonitor(options));
}

absl::StatusOr<PredictedEnd> RunShadowCooldown(Subject& subject,
                                               const ShadowCooldownOptions& options,
                                               const ExecutionContext& context) {
  return internal::Guard([&] { return RunOrThrow(subject, options, context); });
}

}  // namespace ptqwatch
