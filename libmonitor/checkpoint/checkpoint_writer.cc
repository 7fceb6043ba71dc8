#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "base/atomic_file.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "checkpoint/safetensors_writer.h"
#include "ptqwatch/offline/checkpoint_export.h"

namespace ptqwatch {

absl::Status WriteCheckpoint(const std::string& folder, const std::vector<TensorSource>& tensors,
                             const TensorMetadata& metadata, const std::string& config_json) {
  std::error_code error;
  const bool created = std::filesystem::create_directory(folder, error);
  if (error) {
    return absl::ErrnoToStatus(
        error.value(), internal::StrCat("cannot create the folder ", internal::Quoted(folder)));
  }
  // Runs after the files below have removed their temporary files. Removes the folder only if it is
  // empty.
  absl::Cleanup remove_folder = [&] {
    if (created) rmdir(folder.c_str());
  };
  PTQWATCH_ASSIGN_OR_RETURN(internal::AtomicFile config,
                            internal::AtomicFile::Create(internal::StrCat(folder, "/config.json")));
  PTQWATCH_RETURN_IF_ERROR(config.Append(config_json));
  PTQWATCH_RETURN_IF_ERROR(config.Sync());
  PTQWATCH_ASSIGN_OR_RETURN(internal::AtomicFile model,
                            internal::StageSafetensors(
                                internal::StrCat(folder, "/model.safetensors"), tensors, metadata));
  PTQWATCH_RETURN_IF_ERROR(model.Commit());
  return config.Commit();
}

}  // namespace ptqwatch
