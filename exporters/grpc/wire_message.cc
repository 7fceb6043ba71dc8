#include "wire_message.h"

#include <array>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "ptqwatch/v1/monitor_service.pb.h"

namespace ptqwatch::internal {
namespace {

// Shares the bytes, which it keeps until gRPC is done with them.
grpc::Slice SliceOf(const SharedBytes& bytes) {
  void* const content = const_cast<char*>(bytes->data());
  return grpc::Slice(
      content, bytes->size(), [](void* owner) { delete static_cast<SharedBytes*>(owner); },
      new SharedBytes(bytes));
}

// A response with one field, beside the number of what was missed.
template <typename Response>
grpc::ByteBuffer MakeResponse(int number, const SharedBytes& bytes, int64_t missed) {
  std::vector<grpc::Slice> pieces;
  AppendField(number, bytes, &pieces);
  if (missed > 0) {
    Response rest;
    rest.set_missed(missed);
    pieces.emplace_back(rest.SerializeAsString());
  }
  return grpc::ByteBuffer(pieces.data(), pieces.size());
}

}  // namespace

void AppendField(int number, const SharedBytes& bytes, std::vector<grpc::Slice>* pieces) {
  using google::protobuf::io::CodedOutputStream;
  constexpr uint32_t kLengthDelimited = 2;
  std::array<uint8_t, 20> head;
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(number) << 3 | kLengthDelimited, head.data());
  end = CodedOutputStream::WriteVarint64ToArray(bytes->size(), end);
  pieces->emplace_back(head.data(), static_cast<size_t>(end - head.data()));
  pieces->push_back(SliceOf(bytes));
}

grpc::ByteBuffer MakeReportResponse(const SharedBytes& report, int64_t missed) {
  using Response = v1::WatchReportsResponse;
  return MakeResponse<Response>(Response::kReportFieldNumber, report, missed);
}

grpc::ByteBuffer MakeEventAmongReports(const SharedBytes& event) {
  using Response = v1::WatchReportsResponse;
  return MakeResponse<Response>(Response::kEventFieldNumber, event, 0);
}

grpc::ByteBuffer MakeEventResponse(const SharedBytes& event, int64_t missed) {
  using Response = v1::WatchEventsResponse;
  return MakeResponse<Response>(Response::kEventFieldNumber, event, missed);
}

}  // namespace ptqwatch::internal
