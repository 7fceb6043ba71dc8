#ifndef PTQWATCH_GRPC_WIRE_MESSAGE_H_
#define PTQWATCH_GRPC_WIRE_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "base/shared_bytes.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace ptqwatch::internal {

/// Writes serialised `bytes` as field `number` of a message: tag and length, then the bytes, which
/// are shared, not copied. The concatenated pieces of a message are the message.
void AppendField(int number, const SharedBytes& bytes, std::vector<grpc::Slice>* pieces);

/// A WatchReportsResponse with a v1::Report, with a v1::Event, and a WatchEventsResponse.
grpc::ByteBuffer MakeReportResponse(const SharedBytes& report, int64_t missed);
grpc::ByteBuffer MakeEventAmongReports(const SharedBytes& event);
grpc::ByteBuffer MakeEventResponse(const SharedBytes& event, int64_t missed);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_GRPC_WIRE_MESSAGE_H_
