#ifndef PTQWATCH_OPTIONS_H_
#define PTQWATCH_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/exporter.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"
#include "ptqwatch/serve_options.h"

namespace ptqwatch {

/// Which weights are quantized. Patterns are globs over canonical parameter names ('*' any run of
/// characters, '?' one).
struct LayerSelection {
  /// A parameter must match one of these. Empty: any parameter does.
  std::vector<std::string> include = {};
  /// ... and none of these. Parameters that are no factor of a product (norms, biases), embeddings
  /// and the output head (the last product of the forward pass) are never quantized anyway.
  std::vector<std::string> exclude = {};
  /// Quantize the output head too.
  bool output_head = false;
};

/// What is measured of the loss surface, on the subject's curvature batches: top eigenvalue and
/// trace of the Hessian, and the second-order prediction of every quantizer's loss change.
/// Estimators stop at the precision asked for here, or at a cap (CurvatureEngineOptions).
struct CurvatureOptions {
  bool enabled = true;  ///< of a monitor
  CurvatureScope scope = CurvatureScope::kQuantizedWeights;
  /// With kNamedParameters: globs over canonical parameter names ('*' any run of characters, '?'
  /// one). A parameter that matches one of them is in the scope.
  std::vector<std::string> parameters = {};
  /// The search for an eigenvalue stops at ||Hv - lambda v|| <= this * |lambda|.
  double eigenvalue_residual_ratio = 0.02;
  /// How many of the largest eigenvalues are searched for, one after the other.
  int top_eigenvalues = 1;
  /// The smallest (most negative) one too, which costs about as much as the largest.
  bool bottom_eigenvalue = false;
  /// The trace's estimate stops when its standard error is this share of it.
  double trace_relative_stderr = 0.1;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const CurvatureOptions& options);

/// When a snapshot is due: every so many steps, or in one of two other ways. A trainer may skip
/// steps: what was due in between is due once, at the first step after it.
///
/// With `every` and `log_spaced_per_decade`, due steps depend on the steps and learning rates
/// alone, so a resumed run meets the same ones.
struct ScheduleOptions {
  /// Due at steps divisible by this.
  int64_t every = 1000;
  /// If positive, instead: due after this many seconds, twice as many, and so on, from the first
  /// step on. By the clock, so that another run meets other steps.
  double every_seconds = 0;
  /// If positive, instead: so many times from a step to ten times that step, evenly on a
  /// logarithmic scale. With 4 at steps 1, 2, 4, 6, 10, 18, 32, 57, 100, ...
  int64_t log_spaced_per_decade = 0;
  /// While the learning rate decays (LrPhase::kDecay), this many times as many snapshots are due.
  /// The additional ones only use time that is left: they are taken where the monitor is idle and
  /// expects to be done before the next one of the plain schedule is due. Otherwise nothing is
  /// missed, and none is counted as skipped. 1: none.
  int64_t decay_density = 4;
};

/// What the average of the last snapshots would give, at full precision and quantized like the
/// watched quantizer (Verdict::method). Measured with the snapshots that measure curvature.
struct AveragingOptions {
  bool enabled = true;
  /// Snapshots of the mean (LAWA, arXiv 2209.14981); 2 to 64. Each holds a copy of the parameters;
  /// where max_bytes does not allow so many there are fewer, and the report says how many.
  int64_t window = 6;
  /// Every so many-th snapshot enters the averages.
  int64_t spacing = 1;
  /// Also m = decay m + (1 - decay) w over the same snapshots, in (0, 1). 0: no such average.
  double decay = 0;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const AveragingOptions& options);

/// 1/8, 1/4 and 1/2.
PTQWATCH_EXPORT std::vector<double> DefaultCooldownLengths();

/// Shadow cooldowns: from a snapshot, a copy of the model is trained through a decay of the
/// learning rate that has not begun, on the subject's own batches (train_step of its options), to
/// see what quantization would cost at its end. They use the time that snapshots leave, and stop
/// while one is measured.
struct CooldownOptions {
  /// Optimizer steps of the decay that is planned. 0: known to whoever asks for a cooldown alone.
  int64_t decay_steps = 0;
  DecayShape shape = DecayShape::kLinear;
  double final_ratio = 0;  ///< of the last rate to the first, in [0, 1)
  /// Decays are simulated in these shares of `decay_steps`, in (0, 1], ascending; what the whole
  /// one would give is extrapolated. The more steps, the surer it is: those by default are 7/8 of
  /// the steps of the decay itself.
  std::vector<double> lengths = DefaultCooldownLengths();
  /// Before each of them the copy is trained at the full rate for as many steps, or as many as the
  /// simulated decay has, if they are fewer: its optimizer begins with no moments.
  int64_t settle_steps = 100;
  /// At every so many-th snapshot of the plateau; 0: only where asked for (Control). Needs
  /// `decay_steps`.
  int64_t every_snapshots = 0;
  /// Wall-clock cap of a cooldown. What it cuts short has the status out_of_time. Zero: no cap.
  std::chrono::milliseconds max_time{0};
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const CooldownOptions& options);

/// MonitorOptions::monitor_device = "auto": a larger model on a GPU is measured there, because on a
/// core a snapshot of it takes minutes.
inline constexpr int64_t kMostParametersOnCpu = 100'000'000;

struct MonitorOptions {
  /// By default training starts whatever is wrong with the monitor. The log, Monitor::status(), the
  /// exporters that can be started and, where it can be written, the journal say what it is.
  OnFailure on_failure = OnFailure::kInert;

  ScheduleOptions schedule = {};

  /// What is tried on every snapshot; at least one.
  std::vector<QuantizerSpec> quantizers = DefaultQuantizers();
  /// {glob, spec}: layers that match use `spec` instead, in every entry of `quantizers` with the
  /// same method and bits. First match wins.
  std::vector<std::pair<std::string, QuantizerSpec>> overrides = {};
  LayerSelection layers = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  /// Maximum bytes of Gram matrices at a time. One takes 8 times the square of a layer's inputs: 1
  /// GiB is enough for 11,585 inputs. Where all of them together need more, the calibration data is
  /// run through the model several times, which changes no result. A layer whose Gram matrix alone
  /// needs more is left out, and reported as skipped.
  int64_t max_gram_bytes = int64_t{1} << 30;

  /// What is measured of the loss surface beside the quantization error. The engine chooses itself
  /// how; where it cannot work on this model, curvature is left out and every report says why.
  CurvatureOptions curvature = {};

  AveragingOptions averaging = {};
  /// Off unless the subject can train its replica.
  CooldownOptions cooldown = {};
  /// Which layers to keep at more bits, where two bit-widths of one method are tried: chosen by the
  /// curvature along the quantization error, and measured (Report::mixed_precision).
  bool mixed_precision = true;

  /// Called on the monitor thread when the verdict becomes an alarm, or another alarm, with the
  /// report that shows it. The trainer must not be touched from here without its own
  /// synchronization: set an atomic that the training loop reads. What it throws is logged.
  std::function<void(const AnalyzedReport&)> on_alert = {};

  /// A loss comparison stops adding tokens when the paired standard error of the loss change is
  /// this share of the change ...
  double relative_stderr = 0.05;
  /// ... or this share of the loss, where the change is so small that it does not matter ...
  double absolute_stderr_ratio = 0.0005;
  /// ... or when this many tokens or all probe batches were used.
  int64_t max_probe_tokens = 65536;
  /// Wall-clock cap of one snapshot. What it cuts short has the status out_of_time and no value.
  /// Zero: no cap.
  std::chrono::milliseconds max_snapshot_time{0};
  /// A probe that failed this many times in a row is switched off for the rest of the run.
  int max_failures_in_a_row = 5;

  /// Seeds everything random; recorded in the fingerprint.
  uint64_t seed = 0;
  /// Share of its time that training may lose to the monitor's work, in (0, 1], where the machine
  /// has no core to spare. Whether it has is measured all the time: where the CPUs that the process
  /// may use are idle, the monitor works without pause.
  double max_overhead = 0.02;
  /// Fit what a snapshot measures to what the machine has to spare and to the schedule: fewer probe
  /// and calibration batches, a smaller curvature batch, curvature at every k-th snapshot
  /// (Report::plan, Event::Kind::kPlanChanged). Snapshots are skipped while the monitor rests.
  /// False: every snapshot is measured with all batches, whatever that takes.
  bool adapt_plan = true;
  /// Works this share of wall-clock time, in (0, 1], whatever the machine has to spare.
  std::optional<double> duty_cycle = {};
  /// Memory in bytes that the monitor may hold, from Create on: replica, staged snapshot, optimizer
  /// moments, batches, forward passes, and all that measuring takes. What does not fit is left out,
  /// in this order, and the report says so: slices; gradient graphs that are kept (others take
  /// longer); Gram matrices and quantized weights of several layers and quantizers at a time (fewer
  /// take longer); the curvature along quantization errors; curvature; a quantizer whose weights do
  /// not fit. Create fails where not even the replica fits. 0: a quarter of what the machine, the
  /// cgroup and the process limits leave free at Create. While measuring never more than half of
  /// what is free then.
  int64_t max_bytes = 0;
  /// Threads the trainer computes with, and that Finish may use. 0: at::get_num_threads() at
  /// Create.
  int training_threads = 0;

  /// Where the replica lives and everything is measured, which matters for models on a GPU:
  ///   "auto"     the model's own device, but the CPU for a model on a GPU that has at most
  ///              kMostParametersOnCpu parameters
  ///   "trainer"  the model's own device
  ///   "cpu", "cuda:1", ...
  /// On the trainer's own GPU nothing separates the monitor from training: an assertion or an
  /// illegal access of a kernel that the losses closure starts ends all CUDA work of the process,
  /// and no priority keeps the monitor's kernels from delaying others. What the closure and the
  /// replica use beside their tensors must work on this device.
  std::string monitor_device = "auto";
  /// For models on a GPU whose trainer calls Monitor::BeforeUpdate: parameters are copied on a
  /// stream of the monitor's beside the forward and backward passes that follow, and not on the
  /// trainer's own.
  bool copy_beside_training = false;
  /// Free bytes of a GPU that the monitor leaves to others: where its copies or the first snapshot
  /// would take them, Create fails or that snapshot is not measured. Later ones take no more.
  int64_t device_reserve_bytes = int64_t{1} << 30;

  /// Identifies the run in journals and metrics. Empty: taken from `run_dir` on resume, else
  /// generated.
  std::string run_id = {};
  /// Directory of the run, created if missing: the monitor keeps its journal (a line for each
  /// report and event) and its state there. One that holds a run is resumed. Empty: nothing is
  /// kept.
  std::string run_dir = {};
  /// Go on in a `run_dir` whose run had another model, other data, quantizers or seed (another
  /// Report::fingerprint). Its numbers cannot be compared with those that follow: verdicts begin
  /// anew. Without it that is an error of Create.
  bool allow_changed_run = false;

  /// Starts `ptqwatch serve` beside the run, as a process of its own: /metrics, gRPC and the live
  /// page. Create waits for it, 5 s at most. If it cannot be started, Monitor::served(), the log
  /// and an event say why, and training goes on. Without a `run_dir` the run is kept in a temporary
  /// directory, which the server removes.
  std::optional<ServeOptions> serve = {};

  /// Tests give a fake one. Must outlive the monitor, and its thread where Stop missed its
  /// deadline.
  Clock* clock = Clock::Real();
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const MonitorOptions& options);

}  // namespace ptqwatch

#endif  // PTQWATCH_OPTIONS_H_
