#include "python_subject.h"

#include <stdexcept>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "torch/csrc/utils/pybind.h"

namespace ptqwatch::python {
namespace {

std::vector<NamedTensor> NamedTensors(const py::object& list) {
  std::vector<NamedTensor> tensors;
  for (const py::handle entry : list) {
    const auto fields = entry.cast<py::tuple>();
    tensors.push_back(
        {fields[0].cast<std::string>(), fields[1].cast<at::Tensor>(), fields[2].cast<bool>()});
    if (fields.size() == 3) continue;
    tensors.back().global_shape = fields[3].cast<std::vector<int64_t>>();
    tensors.back().offset = fields[4].cast<std::vector<int64_t>>();
  }
  return tensors;
}

at::Tensor OptionalTensor(const py::handle& object) {
  return object.is_none() ? at::Tensor() : object.cast<at::Tensor>();
}

OptimizerView ViewOf(const py::dict& fields) {
  OptimizerView view;
  const absl::StatusOr<OptimizerKind> kind = ParseOptimizerKind(fields["kind"].cast<std::string>());
  if (!kind.ok()) throw std::runtime_error(std::string(kind.status().message()));
  view.kind = *kind;
  view.momentum = fields["momentum"].cast<double>();
  view.dampening = fields["dampening"].cast<double>();
  view.nesterov = fields["nesterov"].cast<bool>();
  view.beta1 = fields["beta1"].cast<double>();
  view.beta2 = fields["beta2"].cast<double>();
  view.epsilon = fields["epsilon"].cast<double>();
  view.unavailable = fields["unavailable"].cast<std::string>();
  for (const py::handle entry : fields["parameters"]) {
    const auto parameter = entry.cast<py::tuple>();
    view.parameters.push_back({.name = parameter[0].cast<std::string>(),
                               .learning_rate = parameter[1].cast<double>(),
                               .weight_decay = parameter[2].cast<double>(),
                               .steps = parameter[3].cast<int64_t>(),
                               .second_moment = OptionalTensor(parameter[4])});
  }
  return view;
}

}  // namespace

thread_local StepLock* StepLock::current_ = nullptr;

void LossesCall::Interrupt() {
  InPython([this] {
    if (thread_ != 0) PyThreadState_SetAsyncExc(thread_, PyExc_SystemExit);
  });
}

PythonSubject::PythonSubject(const py::object& adapter, Batches probe, Batches calibration,
                             Batches curvature)
    : adapter_(adapter),
      refusal_(adapter.attr("refusal").cast<std::string>()),
      can_train_(adapter.attr("can_train").cast<bool>()),
      probe_(std::move(probe)),
      calibration_(calibration.empty() ? probe_ : std::move(calibration)),
      curvature_(std::move(curvature)) {}

std::vector<NamedTensor> PythonSubject::LiveTensors() const {
  if (!refusal_.empty()) throw std::runtime_error(refusal_);
  std::vector<NamedTensor> tensors =
      InPython([this] { return NamedTensors(Call(adapter_.get().attr("live"))); });
  StepLock::Release();
  return tensors;
}

std::optional<OptimizerView> PythonSubject::Optimizer() const {
  return InPython([this]() -> std::optional<OptimizerView> {
    const py::object view = Call(adapter_.get().attr("optimizer"));
    if (view.is_none()) return std::nullopt;
    return ViewOf(view);
  });
}

absl::Status PythonSubject::BuildReplica() {
  if (!replica_.empty()) return absl::OkStatus();
  replica_ = InPython([this] { return NamedTensors(Call(adapter_.get().attr("build"))); });
  return absl::OkStatus();
}

LossValues PythonSubject::ReplicaLosses(const Batch& batch) {
  return InPython([&] {
    const py::object losses = adapter_.get().attr("losses");
    const py::tuple arguments = py::make_tuple(static_cast<const std::vector<at::Tensor>&>(batch));
    losses_call_->thread_ = PyThread_get_thread_ident();
    const absl::Cleanup ended = [this] { losses_call_->thread_ = 0; };
    const py::tuple result = Call(losses, arguments);
    LossValues values(result[0].cast<at::Tensor>(), OptionalTensor(result[1]));
    values.logits = OptionalTensor(result[2]);
    values.correct = OptionalTensor(result[3]);
    training_ = result[4].cast<std::string>();
    return values;
  });
}

void PythonSubject::TrainReplica(const CooldownStep& step) {
  InPython([&] {
    Call(adapter_.get().attr("train"),
         py::make_tuple(step.index, step.steps, step.learning_rate, step.batch));
  });
}

}  // namespace ptqwatch::python
