#ifndef PTQWATCH_PROTO_CLIENT_REPORT_STREAM_H_
#define PTQWATCH_PROTO_CLIENT_REPORT_STREAM_H_

#include <chrono>
#include <memory>

#include "client/connection.h"

namespace ptqwatch::internal {

/// One WatchReports stream, with GetStatus calls beside it, as a queue of results. The destructor
/// cancels everything in progress and returns at once. Not thread-safe.
class ReportStream {
 public:
  enum class Result {
    kResponse,  ///< response() is new
    kStatus,    ///< an answer to AskStatus: status_code(), status_response()
    kNothing,   ///< the deadline has passed
    kEnded,     ///< the stream ended; ended() says why
  };

  /// `connection` must outlive the stream.
  ReportStream(Connection* connection, const v1::WatchReportsRequest& request);
  ~ReportStream();
  ReportStream(const ReportStream&) = delete;
  ReportStream& operator=(const ReportStream&) = delete;

  Result Next(std::chrono::system_clock::time_point deadline);
  /// Requests the status. Does nothing if an earlier request is still unanswered.
  void AskStatus();

  const v1::WatchReportsResponse& response() const { return response_; }
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
  /// The message being read; swapped with response_, which stays valid during the next read.
  v1::WatchReportsResponse incoming_;
  v1::WatchReportsResponse response_;
  grpc::Status ended_;

  std::unique_ptr<grpc::ClientContext> status_context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GetStatusResponse>> status_reader_;
  v1::GetStatusResponse status_response_;
  grpc::Status status_code_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROTO_CLIENT_REPORT_STREAM_H_
