#include "staging/shared_optimizer.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "ATen/ops/empty.h"
#include "base/status_macros.h"
#include "handover/shared_text.h"

namespace ptqwatch::internal {

// The numbers of one parameter.
struct SharedOptimizer::Numbers {
  bool listed = false;
  bool has_moment = false;
  double learning_rate = 0;
  double weight_decay = 0;
  int64_t steps = 0;
};

// The numbers follow it, one for each entry.
struct alignas(64) SharedOptimizer::Rule {
  bool known = false;
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  SharedText unavailable{};
};

absl::StatusOr<OptimizerLayout> SharedOptimizer::Place(const OptimizerStaging::Read& read,
                                                       const TensorTable& live, int64_t& end) {
  OptimizerLayout layout;
  for (const TensorEntry& entry : live.entries) {
    layout.moments.push_back(
        {entry.name, entry.tensor.sizes().vec(), entry.tensor.scalar_type(), true, 0});
  }
  int64_t behind = end;
  const int64_t offset =
      Reserve(static_cast<int64_t>(sizeof(Rule) + layout.moments.size() * sizeof(Numbers)), behind);
  const auto place = [&](size_t entry, at::ScalarType type, int64_t size) {
    layout.moments[entry].dtype = type;
    layout.moments[entry].offset = Reserve(size, behind);
    return at::empty({0});
  };
  PTQWATCH_ASSIGN_OR_RETURN(
      const OptimizerStaging placed,
      OptimizerStaging::Create(read, live, FloatingParameters(live), nullptr, nullptr, place));
  if (placed.description().empty()) return OptimizerLayout();
  layout.offset = offset;
  end = behind;
  return layout;
}

std::optional<SharedOptimizer> SharedOptimizer::In(const SharedMemory& memory,
                                                   const OptimizerLayout& layout) {
  if (layout.offset == 0) return std::nullopt;
  return SharedOptimizer(memory.At(layout.offset), memory.Tensors(layout.moments));
}

SharedOptimizer::SharedOptimizer(void* memory, std::vector<NamedTensor> moments)
    : rule_(static_cast<Rule*>(memory)), moments_(std::move(moments)) {
  static_assert(std::is_trivially_copyable_v<Rule> && std::is_trivially_copyable_v<Numbers>);
  for (size_t i = 0; i < moments_.size(); ++i) entry_[moments_[i].name] = i;
}

SharedOptimizer::Numbers* SharedOptimizer::numbers() const {
  return reinterpret_cast<Numbers*>(rule_ + 1);
}

absl::StatusOr<OptimizerStaging> SharedOptimizer::MakeStaging(const OptimizerStaging::Read& read,
                                                              const TensorTable& live,
                                                              DeviceStream& stream) {
  const auto shared = [this](size_t entry, at::ScalarType, int64_t) {
    return moments_[entry].tensor;
  };
  PTQWATCH_ASSIGN_OR_RETURN(
      OptimizerStaging staging,
      OptimizerStaging::Create(read, live, FloatingParameters(live), nullptr, nullptr, shared));
  OptimizerState state;
  staging.Fill(stream, state);
  Write(state);
  return staging;
}

void SharedOptimizer::Write(const OptimizerState& state) noexcept {
  std::fill_n(numbers(), moments_.size(), Numbers());
  if (!state.view) {
    rule_->known = !state.problem.empty();
    return Put(state.problem, rule_->unavailable);
  }
  const OptimizerView& view = *state.view;
  rule_->known = true;
  rule_->kind = view.kind;
  rule_->momentum = view.momentum;
  rule_->dampening = view.dampening;
  rule_->nesterov = view.nesterov;
  rule_->beta1 = view.beta1;
  rule_->beta2 = view.beta2;
  rule_->epsilon = view.epsilon;
  Put(view.unavailable, rule_->unavailable);
  for (const OptimizedParameter& parameter : view.parameters) {
    numbers()[entry_.find(parameter.name)->second] = {
        .listed = true,
        .has_moment = parameter.second_moment.defined(),
        .learning_rate = parameter.learning_rate,
        .weight_decay = parameter.weight_decay,
        .steps = parameter.steps};
  }
}

std::optional<OptimizerView> SharedOptimizer::Read() const {
  if (!rule_->known) return std::nullopt;
  OptimizerView view{.kind = rule_->kind,
                     .momentum = rule_->momentum,
                     .dampening = rule_->dampening,
                     .nesterov = rule_->nesterov,
                     .beta1 = rule_->beta1,
                     .beta2 = rule_->beta2,
                     .epsilon = rule_->epsilon,
                     .unavailable = rule_->unavailable.data()};
  for (size_t i = 0; i < moments_.size(); ++i) {
    const Numbers& own = numbers()[i];
    if (!own.listed) continue;
    view.parameters.push_back(
        {.name = moments_[i].name,
         .learning_rate = own.learning_rate,
         .weight_decay = own.weight_decay,
         .steps = own.steps,
         .second_moment = own.has_moment ? moments_[i].tensor : at::Tensor()});
  }
  return view;
}

}  // namespace ptqwatch::internal
