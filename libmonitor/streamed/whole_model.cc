#include "streamed/whole_model.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "models/weight_reader.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::internal {
namespace {

// For a closure, which reports its errors by exceptions.
template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(StrCat(value.status()));
  return *std::move(value);
}

LossValues NextTokenLosses(const Decoder& decoder, const at::Tensor& tokens) {
  const int64_t length = tokens.size(1) - 1;
  at::Tensor hidden = ValueOrThrow(decoder.Embed(tokens.narrow(1, 0, length).contiguous()));
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    hidden = ValueOrThrow(decoder.ReadBlock(block)).Forward(hidden);
  }
  return ValueOrThrow(decoder.ReadHead())
      .TokenLosses(hidden, tokens.narrow(1, 1, length).contiguous());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Subject>> MakeDecoderSubject(const Decoder& decoder, Batches probe,
                                                            Batches calibration) {
  FunctionSubjectOptions options;
  for (const std::string& name : decoder.TensorNames()) {
    PTQWATCH_ASSIGN_OR_RETURN(at::Tensor tensor, decoder.weights().Read(name));
    options.live.push_back({.name = name, .tensor = std::move(tensor)});
  }
  options.losses = [config = decoder.config()](const TensorMap& tensors, const Batch& batch) {
    const MapReader reader{MapReader::Tensors(tensors)};
    return NextTokenLosses(ValueOrThrow(Decoder::Create(config, reader)), batch[0]);
  };
  options.probe = std::move(probe);
  options.calibration = std::move(calibration);
  return MakeFunctionSubject(std::move(options));
}

}  // namespace ptqwatch::internal
