#include "client/report_stream.h"

namespace ptqwatch::internal {

ReportStream::ReportStream(Connection* connection, const v1::WatchReportsRequest& request)
    : connection_(connection), reader_([&] {
        connection->Authorize(context_);
        return connection->stub().AsyncWatchReports(&context_, request, &queue_, Pointer(kStarted));
      }()) {}

ReportStream::~ReportStream() {
  context_.TryCancel();
  if (status_context_ != nullptr) status_context_->TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

ReportStream::Result ReportStream::Next(std::chrono::system_clock::time_point deadline) {
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT) {
      return Result::kNothing;
    }
    switch (static_cast<Tag>(reinterpret_cast<intptr_t>(tag))) {
      case kStarted:
      case kRead:
        if (!ok) {
          reader_->Finish(&ended_, Pointer(kFinished));
          break;
        }
        if (tag == Pointer(kRead)) response_.Swap(&incoming_);
        reader_->Read(&incoming_, Pointer(kRead));
        if (tag == Pointer(kRead)) return Result::kResponse;
        break;
      case kFinished:
        return Result::kEnded;
      case kStatusAnswered:
        status_reader_.reset();
        status_context_.reset();
        return Result::kStatus;
    }
  }
}

void ReportStream::AskStatus() {
  if (status_reader_ != nullptr) return;
  status_context_ = std::make_unique<grpc::ClientContext>();
  status_context_->set_deadline(connection_->CallDeadline());
  connection_->Authorize(*status_context_);
  status_reader_ = connection_->stub().AsyncGetStatus(status_context_.get(),
                                                      connection_->StatusRequest(), &queue_);
  status_response_.Clear();
  status_reader_->Finish(&status_response_, &status_code_, Pointer(kStatusAnswered));
}

}  // namespace ptqwatch::internal
