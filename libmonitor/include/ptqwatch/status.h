#ifndef PTQWATCH_STATUS_H_
#define PTQWATCH_STATUS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/config.h"
#include "ptqwatch/control.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch {

/// Progress of the newest slice.
enum class SliceState : int {
  kNone = 0,              ///< no slice was requested
  kWaitingForFirst = 1,   ///< waits for the snapshot Theta_{K-1}
  kWaitingForSecond = 2,  ///< waits for Theta_K; holds the weights of Theta_{K-1}
  kMeasuring = 3,
  kDone = 4,
  kFailed = 5,
};
/// "none", "waiting_for_first", "waiting_for_second", "measuring", "done", "failed".
PTQWATCH_EXPORT std::string_view ToString(SliceState state);

/// Status of the newest requested slice.
struct SliceStatus {
  SliceState state = SliceState::kNone;
  int64_t number = 0;  ///< 1 for the first slice of this process, ...
  MakeSlice request = {};
  int64_t points_done = 0;
  int64_t points_all = 0;
  std::string path = {};   ///< of the slice file; kDone only
  std::string error = {};  ///< kFailed only

  bool under_way() const {
    return state == SliceState::kWaitingForFirst || state == SliceState::kWaitingForSecond ||
           state == SliceState::kMeasuring;
  }
};

/// Progress of the newest shadow cooldown.
enum class CooldownState : int {
  kNone = 0,        ///< no cooldown yet
  kWaiting = 1,     ///< waits for its snapshot
  kSimulating = 2,  ///< trains in the time that snapshots leave
  kDone = 3,        ///< the next report has the result
  kFailed = 4,
};
/// "none", "waiting", "simulating", "done", "failed".
PTQWATCH_EXPORT std::string_view ToString(CooldownState state);

/// Status of the newest shadow cooldown.
struct CooldownStatus {
  CooldownState state = CooldownState::kNone;
  int64_t number = 0;       ///< 1 for the first one of this process, ...
  int64_t decay_steps = 0;  ///< of the planned decay
  int64_t step = 0;         ///< of its snapshot; 0 while waiting for one
  int64_t steps_done = 0;   ///< optimizer steps simulated so far
  int64_t steps_all = 0;
  bool waits_for_core = false;  ///< continues once a core is spare; kSimulating only
  std::string result = {};      ///< one sentence; kDone only
  std::string error = {};       ///< kFailed only

  bool under_way() const {
    return state == CooldownState::kWaiting || state == CooldownState::kSimulating;
  }
};

enum class ServerState : int {
  kNone = 0,      ///< no server was requested
  kStarting = 1,  ///< no sign of life yet
  kServing = 2,
  kRestarting = 3,  ///< ended; will be started again
  kFailed = 4,      ///< cannot be started; ServerStatus::reason
};
/// "none", "starting", "serving", "restarting", "failed".
PTQWATCH_EXPORT std::string_view ToString(ServerState state);

/// The server started by MonitorOptions::serve.
struct ServerStatus {
  ServerState state = ServerState::kNone;
  std::string metrics = {};  ///< "http://HOST:PORT/metrics"; kServing only
  std::string grpc = {};     ///< "HOST:PORT"; kServing only
  int64_t restarts = 0;      ///< attempts to start it after the first
  std::string reason = {};   ///< why it is kRestarting or kFailed
};

/// Facts about a run that do not change while it runs.
struct RunInfo {
  std::string run_id;
  int attempt = 1;
  std::string fingerprint;
  std::string run_dir;             ///< empty: nothing is written to disk
  int64_t parameters = 0;          ///< of the model
  int64_t covered_parameters = 0;  ///< in layers that are quantized
  std::string device;              ///< where the probes run, e.g. "cpu"
  /// The kind that Subject::Optimizer gives; absent: unknown.
  std::optional<OptimizerKind> optimizer = {};
};

/// The outcome of a due snapshot.
enum class SnapshotResult : int {
  kTaken = 0,
  kSkippedBusy = 1,        ///< the staging slot still held the previous snapshot
  kSkippedMismatch = 2,    ///< tensors differ from those at Create
  kFailed = 3,             ///< copying failed
  kSkippedPaused = 4,      ///< the monitor was paused by a command
  kSkippedResting = 5,     ///< the monitor had used up its share of the machine
  kSkippedConcurrent = 6,  ///< another thread was inside OnStep; this step was ignored
  kIncomplete = 7,         ///< one that was taken, but not by all ranks of a sharded model
};
inline constexpr int kSnapshotResults = 8;
/// "taken", "skipped_busy", "skipped_mismatch", "failed", "skipped_paused",
/// "skipped_resting", "skipped_concurrent", "incomplete".
PTQWATCH_EXPORT std::string_view ToString(SnapshotResult result);

enum class Health : int {
  kStarting = 0,
  kOk = 1,
  kDegraded = 2,  ///< some measurements are missing; see MonitorStatus::health_reason
  kStopped = 3,
  kInert = 4,   ///< Create failed; nothing is measured (MonitorOptions::on_failure)
  kSilent = 5,  ///< seen from outside: no sign of life (RunSource)
};
inline constexpr int kHealths = 6;
/// "starting", "ok", "degraded", "stopped", "inert", "silent".
PTQWATCH_EXPORT std::string_view ToString(Health health);

/// Upper bounds in seconds of the stall histogram; the last bucket is open.
inline constexpr std::array<double, 12> kStallBucketSeconds = {1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3,
                                                               1e-2, 5e-2, 0.1,  0.5,  1.0,  5.0};

/// Number of occurrences of each value of an enum; element i is for value i.
template <typename Enum, size_t kCount>
struct Counts : std::array<int64_t, kCount> {};

/// Reports and events that an exporter did not deliver.
struct DroppedReports {
  std::string exporter;
  std::string reason;
  int64_t count = 0;
  friend bool operator==(const DroppedReports&, const DroppedReports&) = default;
};

/// One rank of a run with several (MonitorOptions::ranks), for a reader of them all.
struct RankStatus {
  int64_t rank = 0;
  Health health = Health::kStarting;
  std::string health_reason = {};
  std::optional<int64_t> snapshot_step = {};  ///< of its newest report, if known
  int64_t reports_total = 0;
  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

/// Whether the ranks of a run have equal parameters, by the digests in their reports.
struct ReplicaStatus {
  int64_t compared_step = 0;   ///< newest step that two ranks or more have reported; 0: none yet
  bool diverged = false;       ///< true until all ranks that differed are equal again
  int64_t diverged_step = 0;   ///< first step at which they differed
  std::string parameter = {};  ///< first one that differs, in the model's order
  /// The ranks that differ from most ranks, such as "2" or "2, 5"; empty without a majority.
  std::string minority = {};
};

/// The current counters and gauges, as a copy.
struct MonitorStatus {
  std::optional<int64_t> step;  ///< absent before the first OnStep
  int64_t steps_total = 0;
  double last_step_unix_seconds = 0;
  std::optional<double> learning_rate;  ///< of the newest OnStep; absent if it gave none
  std::optional<int64_t> tokens;
  std::optional<double> training_loss_nats;
  LrPhase lr_phase = LrPhase::kUnknown;
  Health health = Health::kStarting;
  std::string health_reason = {};  ///< for kDegraded, kInert and kSilent
  bool busy = false;               ///< a snapshot is being measured
  Counts<SnapshotResult, kSnapshotResults> snapshots{};
  int64_t reports_total = 0;
  int64_t last_sequence = 0;  ///< of the newest report; 0: none yet
  int64_t probe_failures_total = 0;
  int64_t state_write_failures_total = 0;  ///< of the state file in the run directory
  /// Histogram of the time in OnStep at steps at which a snapshot was due; other steps are not
  /// timed.
  std::array<int64_t, kStallBucketSeconds.size() + 1> stall_buckets{};
  double stall_seconds_total = 0;
  /// Share of the time since the first step that training has lost to the monitor: to copies of
  /// snapshots, to slower steps while the monitor works, and to the CPU time of the server beside
  /// the run if no core is spare.
  std::optional<double> overhead_ratio;
  /// The 95 % confidence interval of `overhead_ratio`. Absent until steps with and without the
  /// monitor's work have been compared often enough (`overhead_comparisons`).
  std::optional<double> overhead_low_ratio;
  std::optional<double> overhead_high_ratio;
  int64_t overhead_comparisons = 0;
  double overhead_budget_ratio = 0;  ///< MonitorOptions::max_overhead
  /// Work of a snapshot under the current plan, relative to one with all data of the subject.
  double plan_level_ratio = 1;
  int64_t memory_bytes = 0;         ///< held by the monitor
  int64_t memory_peak_bytes = 0;    ///< maximum held so far
  int64_t memory_budget_bytes = 0;  ///< current limit
  double duty_cycle = 1;            ///< share of the time that the monitor may work in the long run
  double seconds_a_step = 0;        ///< mean of the newest 1000 to 2000 steps; 0 before the second
  int64_t every = 0;                ///< steps between snapshots; 0: not scheduled by steps
  bool paused = false;              ///< by a command, or because every probe is switched off
  Counts<Event::Kind, kEventKinds> events{};
  std::vector<DroppedReports> dropped_reports;  ///< by exporter and reason
  /// The newest requested slice through the loss surface.
  SliceStatus slice = {};
  CooldownStatus cooldown = {};
  ServerStatus server = {};
  /// For a reader of a run with several ranks: each rank, ascending. Counters above are sums over
  /// the ranks, except steps.
  std::vector<RankStatus> ranks = {};
  ReplicaStatus replicas = {};
};

/// A run as seen from outside the process: in its run directory (status.json) or at a server.
struct RunStatus {
  std::string name = {};  ///< RunNameOf its directory; empty on a trainer's own server
  std::string version = PTQWATCH_VERSION_STRING;  ///< of the library that wrote this
  RunInfo run = {};
  MonitorStatus monitor = {};
  std::optional<int64_t> process_id = {};        ///< of the trainer, if known
  std::string host = {};                         ///< where that process runs; empty if unknown
  std::optional<double> time_unix_seconds = {};  ///< when this was valid, if known
  int subscribers = 0;                           ///< open streams of the server
};

/// The status as a line of JSON, without a newline: member names are keys, `monitor` is "status".
/// Numbers that are not finite and values that are not known are left out.
PTQWATCH_EXPORT std::string StatusJson(const RunStatus& status);

/// A member of a RunStatus by its path, as printable text, such as "steps_total" and "13", or
/// "slice.request.bits" and "3". The text is empty if the value is unknown.
struct StatusMember {
  std::string name;
  std::string text;
};
/// All members, always in the same order.
PTQWATCH_EXPORT std::vector<StatusMember> MembersOf(const RunStatus& status);

/// The state that exporters may read, on any thread, from Start until Stop returns.
class PTQWATCH_EXPORT StatusSource {
 public:
  virtual ~StatusSource() = default;
  virtual const RunInfo& run() const = 0;
  virtual MonitorStatus status() const = 0;
  /// The newest report, or null.
  virtual std::shared_ptr<const AnalyzedReport> latest() const = 0;
  /// Counts a report that an exporter could not deliver.
  virtual void CountDrop(std::string_view exporter, std::string_view reason) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_STATUS_H_
