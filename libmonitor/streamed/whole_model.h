#ifndef PTQWATCH_STREAMED_WHOLE_MODEL_H_
#define PTQWATCH_STREAMED_WHOLE_MODEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "models/decoder.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// Reads all tensors of a decoder and makes them a Subject whose losses are those of each next
/// token, [sequences, N] for a batch {tokens int64 [sequences, N + 1]}. Memory: the tensors as
/// float32, beyond what opening the subject takes.
absl::StatusOr<std::unique_ptr<Subject>> MakeDecoderSubject(const Decoder& decoder, Batches probe,
                                                            Batches calibration = {});

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_WHOLE_MODEL_H_
