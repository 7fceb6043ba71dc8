#include "snapshot/own_draws.h"

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "ATen/core/dispatch/Dispatcher.h"
#include "base/strings.h"
#include "snapshot/math_attention.h"

namespace ptqwatch::internal {
namespace {

constexpr c10::DispatchKey kKey = kOwnDrawsKey;
constexpr uint64_t kSeed = 0x70747177;

thread_local OwnDraws* innermost = nullptr;

std::optional<at::Device> DeviceOf(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  }
  return std::nullopt;
}

bool IsDefault(const at::Generator& generator) {
  const at::Device device = generator.device();
  if (!device.is_cpu() && !device.is_cuda()) return false;
  return generator == at::globalContext().defaultGenerator(device);
}

}  // namespace

// Intercepts ATen's random operators on threads that have an OwnDraws.
struct RandomOperators {
  static bool IsRandom(const c10::OperatorHandle& op) {
    if (op.hasTag(at::Tag::nondeterministic_seeded)) return true;
    for (const c10::Argument& argument : op.schema().arguments()) {
      if (IsGenerator(argument)) return true;
    }
    return false;
  }

  static bool IsGenerator(const c10::Argument& argument) {
    const auto* optional = argument.type()->castRaw<c10::OptionalType>();
    const c10::TypePtr& type = optional == nullptr ? argument.type() : optional->getElementType();
    return type->kind() == c10::TypeKind::GeneratorType;
  }

  static bool IsEvaluation(const c10::FunctionSchema& schema,
                           c10::ArrayRef<c10::IValue> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = schema.arguments()[i].name();
      const c10::IValue& value = arguments[i];
      if ((name == "train" || name == "training") && value.isBool() && !value.toBool()) return true;
    }
    return false;
  }

  // Returns whether an operator without a generator argument drops elements.
  static bool Drops(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = schema.arguments()[i].name();
      if ((name == "p" || name == "dropout" || name == "dropout_p") && arguments[i].isDouble()) {
        return arguments[i].toDouble() > 0;
      }
    }
    return false;
  }

  static void Replace(OwnDraws& draws, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const c10::FunctionSchema& schema = op.schema();
    const size_t count = schema.arguments().size();
    const size_t first = stack.size() - count;
    const c10::ArrayRef<c10::IValue> arguments(stack.data() + first, count);
    const std::optional<at::Device> device = DeviceOf(arguments);
    if (IsEvaluation(schema, arguments) || (device && device->is_meta())) return;
    bool takes_one = false;
    for (size_t i = 0; i < count; ++i) {
      if (!IsGenerator(schema.arguments()[i])) continue;
      takes_one = true;
      c10::IValue& value = stack[first + i];
      if (!value.isNone() && !IsDefault(value.toGenerator())) continue;
      // Without a tensor argument, the operator makes a tensor and calls an operator that fills it.
      if (!device) continue;
      draws.drew_ = true;
      const at::Generator own = draws.On(*device);
      if (own.defined()) value = c10::IValue(own);
    }
    if (!takes_one && Drops(schema, arguments)) draws.drew_ = true;
  }

  static void Call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
    if (innermost != nullptr) Replace(*innermost, op, *stack);
    if (MathAttention::Replace(op, keys, *stack)) return;
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  }

  // Registers the kernels. Returns the error, or null on success.
  static std::string* Register() {
    try {
      c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
      // Leaked on purpose: LibTorch may be unloaded first.
      auto* handles = new std::vector<c10::RegistrationHandleRAII>;
      handles->push_back(
          dispatcher.registerFallback(kKey, c10::KernelFunction::makeFallthrough(), "ptqwatch"));
      for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        if (!op || !(IsRandom(*op) || name.name == MathAttention::kOperator)) continue;
        handles->push_back(dispatcher.registerImpl(
            name, kKey, c10::KernelFunction::makeFromBoxedFunction<&RandomOperators::Call>(),
            std::nullopt, nullptr, "ptqwatch"));
      }
      return nullptr;
    } catch (const std::exception& error) {
      return new std::string(error.what());
    }
  }
};

namespace {

// Registered when the program is loaded, because operator tables must not change later.
const std::string* const registration_error = RandomOperators::Register();

}  // namespace

OwnDraws::OwnDraws() : included_(kKey), outer_(std::exchange(innermost, this)) {}

OwnDraws::~OwnDraws() {
  innermost = outer_;
  if (outer_ != nullptr && drew_) outer_->drew_ = true;
}

absl::Status OwnDraws::Available() {
  if (registration_error == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("ATen's random operators cannot be kept away from the training run's generators: ",
             *registration_error));
}

at::Generator OwnDraws::On(at::Device device) {
  for (const auto& [of, generator] : own_) {
    if (of == device) return generator;
  }
  at::Generator made;
  if (device.is_cpu()) {
    made = at::detail::createCPUGenerator(kSeed);
  } else if (device.is_cuda()) {
    made = at::detail::getCUDAHooks().getNewGenerator(device.index());
    made.set_current_seed(kSeed);
  }
  own_.emplace_back(device, made);
  return made;
}

}  // namespace ptqwatch::internal
