#include "models/decoder.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "models/expert_reader.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kMaxComplaints = 20;

std::string ShapeOf(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i > 0 ? ", " : "", shape[i]);
  return text + "]";
}

absl::Status ComplainAbout(const std::string& source, const ModelConfig& model,
                           const std::vector<std::string>& complaints) {
  std::string text =
      StrCat(source.empty() ? "" : StrCat(Quoted(source), ": "), "the tensors are not those of a ",
             model.model_type, " with this config: ");
  for (size_t i = 0; i < complaints.size() && i < kMaxComplaints; ++i) {
    text += StrCat(i > 0 ? "; " : "", complaints[i]);
  }
  if (complaints.size() > kMaxComplaints) {
    text += StrCat("; and ", complaints.size() - kMaxComplaints, " more");
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

at::Tensor AsStored(const DecoderLinear& linear, const at::Tensor& matrix) {
  return linear.transposed ? matrix.t() : matrix;
}

absl::StatusOr<Decoder> Decoder::Create(ModelConfig config, const WeightReader& weights) {
  PTQWATCH_ASSIGN_OR_RETURN(std::shared_ptr<const WeightReader> experts,
                            Guard([&] { return ExpertReader::Create(config, weights); }));
  Decoder decoder(std::move(config), experts ? *experts : weights);
  decoder.experts_ = std::move(experts);
  PTQWATCH_RETURN_IF_ERROR(Guard([&decoder] { return decoder.CheckTensors(); }));
  return decoder;
}

absl::Status Decoder::CheckTensors() {
  const std::vector<std::string> names = weights_->Names();
  const auto is_there = [&names](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  outer_ = OuterLayoutOf(*config_);
  // A file may hold a head even if the config ties it, and may call it by its older name.
  for (const std::string_view name : {config_->names.head, config_->names.other_head}) {
    if (name.empty() || !is_there(name)) continue;
    outer_.head = {std::string(name), outer_.embedding.shape};
    break;
  }
  std::map<std::string, std::vector<int64_t>> expected;
  const auto expect = [&expected](const NamedShape& tensor) {
    if (!tensor.name.empty()) expected.emplace(tensor.name, tensor.shape);
  };
  for (const NamedShape& tensor : {outer_.embedding, outer_.positions, outer_.final_norm,
                                   outer_.final_norm_bias, outer_.head}) {
    expect(tensor);
  }
  for (int64_t block = 0; block < blocks(); ++block) {
    for (const NamedShape& tensor : LayoutOf(*config_, block).Tensors()) expect(tensor);
  }
  std::vector<std::string> complaints;
  for (const std::string& name : names) {
    const auto found = expected.find(name);
    if (found == expected.end()) {
      if (!IsIgnoredTensor(*config_, name))
        complaints.push_back(StrCat(Quoted(name), " is left over"));
      continue;
    }
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, weights_->Shape(name));
    if (shape != found->second) {
      complaints.push_back(
          StrCat(Quoted(name), " is ", ShapeOf(shape), " instead of ", ShapeOf(found->second)));
    }
    parameters_ += ElementsOf(shape);
    tensor_names_.push_back(name);
    expected.erase(found);
  }
  for (const auto& [name, shape] : expected) {
    complaints.push_back(StrCat(Quoted(name), " ", ShapeOf(shape), " is missing"));
  }
  if (!complaints.empty()) return ComplainAbout(weights_->Source(), *config_, complaints);
  if (outer_.head.name.empty()) outer_.head = outer_.embedding;
  return absl::OkStatus();
}

std::vector<DecoderLinear> Decoder::LinearsOf(int64_t block) const {
  return LayoutOf(*config_, block).linears;
}

int64_t Decoder::BlockBytes(int64_t block) const {
  int64_t elements = 0;
  for (const NamedShape& tensor : LayoutOf(*config_, block).Tensors()) {
    elements += ElementsOf(tensor.shape);
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<at::Tensor> Decoder::Read(const std::string& name) const {
  if (name.empty()) return at::Tensor();
  return weights_->Read(name);
}

absl::StatusOr<at::Tensor> Decoder::Embed(const at::Tensor& tokens) const {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    return absl::InvalidArgumentError("tokens must be int64 [sequences, length]");
  }
  if (!outer_.positions.name.empty() && tokens.size(1) > config_->context) {
    return absl::InvalidArgumentError(StrCat("sequences have ", tokens.size(1),
                                             " tokens; the model has learned ", config_->context,
                                             " positions"));
  }
  return Guard("embedding", absl::StatusCode::kInternal, [&]() -> absl::StatusOr<at::Tensor> {
    const at::Tensor ids = tokens.contiguous();
    const absl::Span<const int64_t> all(ids.const_data_ptr<int64_t>(),
                                        static_cast<size_t>(ids.numel()));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] >= 0 && all[i] < config_->vocabulary) continue;
      const auto length = static_cast<size_t>(tokens.size(1));
      return absl::InvalidArgumentError(StrCat("token ", i % length, " of sequence ", i / length,
                                               " is ", all[i], "; the vocabulary has ",
                                               config_->vocabulary));
    }
    std::vector<int64_t> rows(all.begin(), all.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    const at::Tensor places = at::empty({ids.numel()}, at::kLong);
    std::transform(all.begin(), all.end(), places.mutable_data_ptr<int64_t>(), [&](int64_t id) {
      return std::lower_bound(rows.begin(), rows.end(), id) - rows.begin();
    });
    PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor read,
                              weights_->ReadRows(outer_.embedding.name, rows));
    const at::Tensor embedded =
        read.index_select(0, places).view({tokens.size(0), tokens.size(1), config_->hidden});
    if (!outer_.positions.name.empty()) {
      rows.resize(static_cast<size_t>(tokens.size(1)));
      std::iota(rows.begin(), rows.end(), 0);
      PTQWATCH_ASSIGN_OR_RETURN(const at::Tensor positions,
                                weights_->ReadRows(outer_.positions.name, rows));
      return embedded + positions;
    }
    const double factor = config_->embedding_multiplier;
    return factor == 1 ? embedded : embedded * factor;
  });
}

absl::StatusOr<DecoderBlock> Decoder::ReadBlock(int64_t block) const {
  if (block < 0 || block >= blocks()) {
    return absl::OutOfRangeError(StrCat("there is no block ", block, " of ", blocks()));
  }
  const BlockLayout layout = LayoutOf(*config_, block);
  DecoderBlock read;
  read.config_ = config_;
  read.layer_ = config_->layers[static_cast<size_t>(block)];
  std::map<std::string, at::Tensor> stacks;
  for (const DecoderLinear& linear : layout.linears) {
    at::Tensor& stack = stacks[linear.stack];
    if (linear.stack.empty() || !stack.defined()) {
      PTQWATCH_ASSIGN_OR_RETURN(stack, Read(linear.tensor()));
    }
    const at::Tensor stored = linear.stack.empty() ? stack : stack.select(0, linear.expert);
    read.weights_.push_back(AsStored(linear, stored));
    PTQWATCH_ASSIGN_OR_RETURN(read.biases_.emplace_back(), Read(linear.bias));
  }
  for (size_t i = 0; i < kBlockVectors; ++i) {
    PTQWATCH_ASSIGN_OR_RETURN(read.vectors_[i], Read(layout.vectors[i].name));
  }
  return read;
}

absl::StatusOr<DecoderHead> Decoder::ReadHead() const {
  DecoderHead head;
  head.config_ = config_;
  PTQWATCH_ASSIGN_OR_RETURN(head.norm_, Read(outer_.final_norm.name));
  PTQWATCH_ASSIGN_OR_RETURN(head.norm_bias_, Read(outer_.final_norm_bias.name));
  PTQWATCH_ASSIGN_OR_RETURN(head.weight_, Read(outer_.head.name));
  return head;
}

}  // namespace ptqwatch::internal
