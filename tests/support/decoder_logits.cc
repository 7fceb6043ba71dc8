// Writes what a decoder computes from checkpoints: decoder_logits TOKENS FOLDER...
//
// TOKENS is "1,2,3;4,5,6" for two sequences of three tokens. Each folder gets a file logits.f32:
// the logits [sequences, length, vocabulary] and then the losses of all tokens but the first of
// each sequence, as float32. A folder that cannot be read is named on standard error; the exit
// status is then 1.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/tensor.h"
#include "absl/status/status.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "models/checkpoint_files.h"
#include "models/checkpoint_reader.h"
#include "models/decoder.h"

namespace {

using ptqwatch::internal::CheckpointFiles;
using ptqwatch::internal::CheckpointReader;
using ptqwatch::internal::Decoder;

at::Tensor ParseTokens(const std::string& text) {
  std::vector<int64_t> all;
  int64_t sequences = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, ';'); ++sequences) {
    std::istringstream tokens(line);
    for (std::string token; std::getline(tokens, token, ',');) all.push_back(std::stoll(token));
  }
  return at::tensor(all).view({sequences, -1});
}

void Append(std::ofstream& file, const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  file.write(reinterpret_cast<const char*>(values.const_data_ptr<float>()),
             values.numel() * static_cast<int64_t>(sizeof(float)));
}

absl::Status WriteLogits(const std::string& folder, const at::Tensor& tokens) {
  PTQWATCH_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(folder));
  const CheckpointReader reader(std::move(files));
  PTQWATCH_ASSIGN_OR_RETURN(const Decoder decoder,
                            Decoder::Create(reader.files().config(), reader));
  PTQWATCH_ASSIGN_OR_RETURN(at::Tensor hidden, decoder.Embed(tokens));
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    PTQWATCH_ASSIGN_OR_RETURN(const auto read, decoder.ReadBlock(block));
    hidden = read.Forward(hidden);
  }
  PTQWATCH_ASSIGN_OR_RETURN(const auto head, decoder.ReadHead());
  std::ofstream file(folder + "/logits.f32", std::ios::binary);
  Append(file, head.Logits(hidden));
  const int64_t predictions = tokens.size(1) - 1;
  Append(file,
         head.TokenLosses(hidden.narrow(1, 0, predictions), tokens.narrow(1, 1, predictions)));
  return file.flush() ? absl::OkStatus() : absl::UnknownError("cannot write " + folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: decoder_logits TOKENS FOLDER...\n";
    return 2;
  }
  const at::NoGradGuard no_grad;
  int failures = 0;
  for (int i = 2; i < argc; ++i) {
    const absl::Status status =
        ptqwatch::internal::Guard([&] { return WriteLogits(argv[i], ParseTokens(argv[1])); });
    if (status.ok()) continue;
    std::cerr << argv[i] << ": " << status << "\n";
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}
