#ifndef PTQWATCH_CLIENT_H_
#define PTQWATCH_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/control.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch {

/// Where a server of ptqwatch.v1 is, which of its runs is meant, and how to talk to it.
struct ClientOptions {
  /// HOST:PORT of a trainer's GrpcExporter or of `ptqwatch serve`; the port is 9465 unless given.
  std::string address = "localhost:9465";
  /// The run's name at the server, or its run_id. Empty: the server's only run.
  std::string run = {};
  /// TLS; also with ca_file or certificate_file.
  bool tls = false;
  std::string ca_file = {};           ///< that signs the server's certificate; empty: the system's
  std::string certificate_file = {};  ///< of this client, PEM, for servers that ask for one
  std::string private_key_file = {};  ///< of certificate_file
  std::string token_file = {};        ///< the server's token
  /// How long a call may take, Watch aside.
  std::chrono::milliseconds timeout{4000};
};

/// A run as its server describes it.
struct RunStatus {
  std::string name = {};     ///< at the server; empty where it serves only its own run
  std::string version = {};  ///< of the library that serves it
  RunInfo run = {};          ///< without run_dir
  /// Without state_write_failures_total, stall_buckets, seconds_a_step, events and dropped_reports.
  MonitorStatus monitor = {};
  int64_t last_sequence = 0;    ///< of the newest report; 0: none yet
  int64_t dropped_reports = 0;  ///< by all exporters
};

struct WatchOptions {
  /// Only reports with a larger sequence; 0: all the server has; unset: those made from now on.
  std::optional<int64_t> after_sequence = 0;
  /// Leaves out the per-layer lists, which are most of a report's bytes.
  bool without_layers = false;
  /// Return when the run's monitor stops; otherwise wait for the run to come back.
  bool exit_when_done = false;
  /// How long the server may be unreachable. Unset: ten seconds before its first answer, then
  /// without limit, or a minute with exit_when_done.
  std::optional<std::chrono::milliseconds> give_up_after = {};
};

/// Gets what Watch receives, on the thread that called it.
class PTQWATCH_EXPORT WatchListener {
 public:
  virtual ~WatchListener() = default;
  /// The next report; never the same one twice. `missed` counts those lost before it. False ends
  /// Watch.
  virtual bool OnReport(const AnalyzedReport& report, int64_t missed) = 0;
  virtual void OnEvent(const Event&) {}
  /// One line for people: the connection was lost or is back, or another run is there now.
  virtual void OnNotice(std::string_view) {}
  /// About once a second. False ends Watch.
  virtual bool OnTick(bool /*connected*/) { return true; }
};

/// Reads and controls a run over gRPC, from another program than the trainer: a scheduler that acts
/// on verdicts, a notebook's back end. It has the types of the library and none of gRPC's.
///
/// Thread-safe. Every call makes a connection of its own, about a millisecond on one machine, so a
/// server that was away is found again by the next call. Errors are one printable line that names
/// the address: Unavailable and DeadlineExceeded where no server answers, Unauthenticated for its
/// token, NotFound for an unknown run, PermissionDenied for commands that it does not allow,
/// ResourceExhausted for those that come too often.
class PTQWATCH_EXPORT Client {
 public:
  /// Reads the files and connects to nothing. InvalidArgument, naming the option, for an address
  /// that cannot be parsed, a file that cannot be read, one of certificate and key alone, and a
  /// timeout that is not positive.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const ClientOptions& options);
  virtual ~Client() = default;

  /// All runs of the server, in the order of their names.
  virtual absl::StatusOr<std::vector<RunStatus>> ListRuns() = 0;
  virtual absl::StatusOr<RunStatus> GetStatus() = 0;
  /// Reports that the server has, oldest first: those with a larger sequence, page by page.
  virtual absl::StatusOr<std::vector<AnalyzedReport>> ListReports(int64_t after_sequence = 0,
                                                                  bool without_layers = false) = 0;
  /// Streams reports and events until the listener ends it, or with exit_when_done the run. It
  /// connects again when the connection is lost, and goes on after the last report seen.
  virtual absl::Status Watch(const WatchOptions& options, WatchListener* listener) = 0;

  /// Control::Do of the run. The server must allow it (GrpcOptions::allow_control).
  virtual absl::StatusOr<int64_t> Do(const Command& command) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_CLIENT_H_
