#include "probes/probe_state_file.h"

#include <sys/statvfs.h>

#include <cstring>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/strings/numbers.h"
#include "base/atomic_file.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "checkpoint/safetensors_writer.h"

namespace ptqwatch::internal {
namespace {

constexpr char kFormat[] = "ptqwatch.probe_state";
constexpr int kVersion = 1;
// Larger values indicate damage, and a double in JSON could not represent them.
constexpr int64_t kMaxSequence = int64_t{1} << 53;

std::string PathIn(const std::string& run_dir) { return StrCat(run_dir, "/", kStateFileName); }

TensorDtype DtypeOf(const Vector& vector) {
  return vector.elements.scalar_type() == at::kDouble ? TensorDtype::kF64 : TensorDtype::kF32;
}

TensorSource SourceOf(const std::string& name, const Vector& vector) {
  const at::Tensor& host = vector.elements;
  return {.name = name,
          .dtype = DtypeOf(vector),
          .shape = {host.numel()},
          .read = [host](int64_t offset, absl::Span<char> out) {
            std::memcpy(out.data(), static_cast<const char*>(host.const_data_ptr()) + offset,
                        out.size());
            return absl::OkStatus();
          }};
}

}  // namespace

absl::Status ProbeStateFile::Write(const std::string& run_dir, const std::string& run_id,
                                   const std::string& fingerprint, const ProbeState& state) {
  return Guard([&]() -> absl::Status {
    std::vector<TensorSource> sources;
    size_t bytes = 0;
    for (const auto& [name, vector] : state.vectors) {
      if (!vector.defined()) continue;
      if (!vector.elements.is_cpu() || !vector.elements.is_contiguous()) {
        return absl::InvalidArgumentError(StrCat("vector '", name, "' on ",
                                                 vector.elements.device().str(),
                                                 " is not contiguous in host memory"));
      }
      sources.push_back(SourceOf(name, vector));
      bytes += vector.elements.nbytes();
    }
    // Both the new and the old file exist for a moment, and the trainer's next checkpoint needs
    // space too, so twice the size is left free in addition.
    struct statvfs disk {};
    if (statvfs(run_dir.c_str(), &disk) == 0 && disk.f_bavail * disk.f_frsize / 3 < bytes) {
      return absl::ResourceExhaustedError(
          StrCat("'", PathIn(run_dir), "' is not written: ", bytes >> 20, " MiB are needed, and ",
                 (disk.f_bavail * disk.f_frsize) >> 20, " MiB of the disk are free"));
    }
    PTQWATCH_ASSIGN_OR_RETURN(AtomicFile file,
                              StageSafetensors(PathIn(run_dir), sources,
                                               {{"format", kFormat},
                                                {"version", std::to_string(kVersion)},
                                                {"run_id", run_id},
                                                {"fingerprint", fingerprint},
                                                {"sequence", std::to_string(state.sequence)}},
                                               0600));
    return file.Commit();
  });
}

absl::StatusOr<ProbeStateFile> ProbeStateFile::Open(const std::string& run_dir) {
  const std::string path = PathIn(run_dir);
  PTQWATCH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  const auto text = [&file](std::string_view key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  int version = 0;
  if (text("format") != kFormat || !absl::SimpleAtoi(text("version"), &version)) {
    return absl::FailedPreconditionError(StrCat("'", path, "' is not a probe state"));
  }
  if (version != kVersion) {
    return absl::FailedPreconditionError(
        StrCat("'", path, "' has version ", version, "; this program knows version ", kVersion));
  }
  int64_t sequence = 0;
  if (!absl::SimpleAtoi(text("sequence"), &sequence) || sequence < 1 || sequence > kMaxSequence) {
    return absl::DataLossError(
        StrCat("'", path, "' is damaged: its sequence is '", text("sequence"), "'"));
  }
  std::string run_id = text("run_id");
  std::string fingerprint = text("fingerprint");
  if (run_id.empty()) {
    return absl::DataLossError(StrCat("'", path, "' is damaged: it names no run"));
  }
  ProbeStateFile result(std::move(file));
  result.run_id_ = std::move(run_id);
  result.fingerprint_ = std::move(fingerprint);
  result.sequence_ = sequence;
  return result;
}

absl::StatusOr<ProbeState> ProbeStateFile::Read(const VectorSpace& space) const {
  return Guard([&]() -> absl::StatusOr<ProbeState> {
    ProbeState state;
    state.sequence = sequence_;
    for (const auto& [name, info] : file_.tensors()) {
      Vector vector = space.Zero();
      if (info.dtype != DtypeOf(vector) || info.shape != std::vector{space.dimension()}) {
        return absl::FailedPreconditionError(StrCat("vector '", name, "' in '", file_.path(),
                                                    "' is ", info.Describe(), ", not of dimension ",
                                                    space.dimension()));
      }
      const at::Tensor host =
          vector.elements.is_cpu()
              ? vector.elements
              : at::empty({space.dimension()}, vector.elements.options().device(at::kCPU));
      PTQWATCH_RETURN_IF_ERROR(file_.ReadBytes(
          name, 0, absl::MakeSpan(static_cast<char*>(host.mutable_data_ptr()), host.nbytes())));
      if (!vector.elements.is_cpu()) vector.elements.copy_(host);
      state.vectors[name] = std::move(vector);
    }
    return state;
  });
}

}  // namespace ptqwatch::internal
