#include "session/monitor_device.h"

#include <cstdlib>
#include <optional>

#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/options.h"

namespace ptqwatch::internal {
namespace {

std::optional<at::Device> Parsed(std::string_view option, at::Device live) {
  std::optional<at::Device> device;
  (void)Guard([&] {
    device = at::Device(std::string(option));
    return absl::OkStatus();
  });
  if (!device || (!device->is_cpu() && !device->is_cuda())) return std::nullopt;
  if (device->is_cpu()) return at::Device(at::kCPU);
  if (device->has_index()) return device;
  return live.is_cuda() ? live : at::Device(at::kCUDA, 0);
}

constexpr std::string_view kSharedQueue =
    "CUDA_DEVICE_MAX_CONNECTIONS is 1: the monitor's kernels delay training kernels that are "
    "started after them";

constexpr std::string_view kShortProducts =
    "NVIDIA_TF32_OVERRIDE is 1: cuBLAS shortens float32 products to TF32, also those that decide "
    "the codes of a quantized weight";

MonitorDevice OnTrainersGpu(const LiveModel& model, std::string note) {
  const at::Device live = model.device;
  MonitorDevice chosen{.device = live, .shares_gpu = true, .note = std::move(note)};
  if (model.in_other_process) {
    chosen.note += "; training is another process, with which this one takes turns on the GPU";
    return chosen;
  }
  chosen.warning = StrCat("measuring on ", live.str(),
                          ", the training GPU: a failed assertion or an illegal access in a kernel "
                          "that the losses closure "
                          "starts would end all CUDA work of this process");
  return chosen;
}

void AddWarning(MonitorDevice& chosen, std::string_view warning) {
  if (!chosen.warning.empty()) chosen.warning += "; ";
  chosen.warning += warning;
}

absl::StatusOr<MonitorDevice> Choose(std::string_view option, const LiveModel& model) {
  const at::Device live = model.device;
  if (option == "auto") {
    if (!live.is_cuda()) return MonitorDevice{.device = live};
    const std::string size =
        StrFormat("%.3g million parameters", 1e-6 * static_cast<double>(model.parameters));
    if (model.parameters <= kMostParametersOnCpu) {
      return MonitorDevice{.device = at::Device(at::kCPU),
                           .note = StrCat("the model is on ", live.str(), " and has ", size,
                                          ", which a core can measure")};
    }
    // Two processes share no memory of the GPU: what one has cached, the other cannot have.
    if (model.in_other_process) {
      return MonitorDevice{.device = at::Device(at::kCPU),
                           .note = StrCat("the model is on ", live.str(), " and has ", size,
                                          ", which take a core long; MonitorOptions.monitor_device "
                                          "= '",
                                          live.str(),
                                          "' measures there, by turns with "
                                          "training")};
    }
    return OnTrainersGpu(model, StrCat(size, " are too many for a core"));
  }
  if (option == kTrainerDevice) {
    return live.is_cuda() ? OnTrainersGpu(model, "asked for") : MonitorDevice{.device = live};
  }
  const std::optional<at::Device> device = Parsed(option, live);
  if (!device) {
    return absl::InvalidArgumentError(
        StrCat("MonitorOptions.monitor_device = '", option,
               "': must be auto, trainer, cpu, cuda or a GPU such as cuda:1"));
  }
  if (*device == live) return Choose(kTrainerDevice, model);
  if (live.is_cpu()) {
    return absl::InvalidArgumentError(
        StrCat("MonitorOptions.monitor_device = '", option,
               "': a model on the CPU is measured there; must be auto, trainer or cpu"));
  }
  return MonitorDevice{.device = *device, .note = "asked for"};
}

}  // namespace

GpuEnvironment GpuEnvironment::OfProcess() {
  const auto value = [](const char* name) {
    const char* const set = std::getenv(name);
    return std::string(set == nullptr ? "" : set);
  };
  return {value("CUDA_DEVICE_MAX_CONNECTIONS"), value("NVIDIA_TF32_OVERRIDE")};
}

absl::StatusOr<MonitorDevice> ChooseMonitorDevice(std::string_view option, const LiveModel& model,
                                                  const GpuEnvironment& environment) {
  PTQWATCH_ASSIGN_OR_RETURN(MonitorDevice chosen, Choose(option, model));
  if (chosen.shares_gpu && environment.connections == "1") AddWarning(chosen, kSharedQueue);
  if (chosen.device.is_cuda() && environment.tf32_override == "1") {
    AddWarning(chosen, kShortProducts);
  }
  return chosen;
}

}  // namespace ptqwatch::internal
