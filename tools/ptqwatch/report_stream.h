#ifndef PTQWATCH_TOOLS_PTQWATCH_REPORT_STREAM_H_
#define PTQWATCH_TOOLS_PTQWATCH_REPORT_STREAM_H_

#include <chrono>
#include <memory>

#include "connection.h"

namespace ptqwatch::internal {

/// One WatchReports stream, with GetStatus calls beside it, as a queue of events for one thread.
/// The destructor cancels what is under way and returns at once.
class ReportStream {
 public:
  enum class Event {
    kReport,   ///< report() is new
    kStatus,   ///< an answer to AskStatus: status_code(), status_response()
    kNothing,  ///< the time was up
    kEnded,    ///< ended() says why; no more reports
  };

  /// `connection` must outlive the stream.
  ReportStream(Connection* connection, const v1::WatchReportsRequest& request);
  ~ReportStream();
  ReportStream(const ReportStream&) = delete;
  ReportStream& operator=(const ReportStream&) = delete;

  Event Next(std::chrono::system_clock::time_point deadline);
  /// Nothing while the answer to the one before is awaited.
  void AskStatus();

  const v1::WatchReportsResponse& report() const { return report_; }
  const grpc::Status& status_code() const { return status_code_; }
  const v1::GetStatusResponse& status_response() const { return status_response_; }
  const grpc::Status& ended() const { return ended_; }

 private:
  enum Tag : intptr_t { kStarted = 1, kRead, kFinished, kStatusAnswered };
  static void* Pointer(Tag tag) { return reinterpret_cast<void*>(tag); }

  Connection* connection_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::WatchReportsResponse>> reader_;
  /// Read into; swapped with report_ so that the next one can be under way while that is looked at.
  v1::WatchReportsResponse incoming_;
  v1::WatchReportsResponse report_;
  grpc::Status ended_;

  std::unique_ptr<grpc::ClientContext> status_context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GetStatusResponse>> status_reader_;
  v1::GetStatusResponse status_response_;
  grpc::Status status_code_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_REPORT_STREAM_H_
