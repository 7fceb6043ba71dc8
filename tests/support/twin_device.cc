#include "support/twin_device.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <variant>

namespace ptqwatch::testing {
namespace {

using internal::ChannelScales;

// Whether the aligned number of type T around byte `at` is NaN.
template <typename T>
bool IsNanAt(const char* memory, size_t at) {
  T number;
  std::memcpy(&number, memory + at / sizeof(T) * sizeof(T), sizeof(T));
  if constexpr (std::is_integral_v<T>)
    return (number & 0x7fff) > 0x7f80;  // bfloat16
  else
    return std::isnan(number);
}

template <typename T>
bool BothNan(const char* ours, const char* theirs, size_t at) {
  return IsNanAt<T>(ours, at) && IsNanAt<T>(theirs, at);
}

// A GPU writes one bit pattern for all NaNs, a CPU that of an operand. Overwrites theirs by ours up
// to the first other difference.
void AcceptOtherNans(const char* ours, std::vector<char>& theirs) {
  const char* const other = theirs.data();
  for (size_t i = 0; i < theirs.size(); ++i) {
    if (other[i] == ours[i]) continue;
    if (!BothNan<double>(ours, other, i) && !BothNan<float>(ours, other, i) &&
        !BothNan<uint16_t>(ours, other, i)) {
      return;
    }
    theirs[i] = ours[i];
  }
}

// Overwrites the numbers of `theirs` that are near ours by ours.
template <typename T>
void AcceptNear(const T* ours, int64_t count, T tolerance, const char* memory,
                std::vector<char>& theirs) {
  if (ours == nullptr) return;
  T* other = reinterpret_cast<T*>(theirs.data() + (reinterpret_cast<const char*>(ours) - memory));
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(other[i] - ours[i]) <= tolerance * std::abs(ours[i])) other[i] = ours[i];
  }
}

// pow() is the one function of a kernel that differs between devices.
void AcceptOtherPowers(const ChannelScales& kernel, const char* memory, std::vector<char>& theirs) {
  for (int64_t layer = 0; layer < kernel.layers; ++layer) {
    AcceptNear(kernel.exact.at(layer), kernel.cols, 1e-13, memory, theirs);
    AcceptNear(kernel.scale.at(layer), kernel.cols, 1e-6f, memory, theirs);
    AcceptNear(kernel.kept.at[layer], kernel.cols, 1e-6f, memory, theirs);
  }
}

}  // namespace

absl::Status TwinDevice::Run(const internal::Kernel& kernel) {
  // A kernel that writes just beyond an allocation is caught, too.
  constexpr int64_t kBeyond = 1 << 16;
  const auto size = static_cast<size_t>(std::min(arena().size(), arena().used() + kBeyond));
  PTQWATCH_RETURN_IF_ERROR(subject_->Synchronize());
  char* const memory = static_cast<char*>(memory_.get());
  before_.assign(memory, memory + size);
  PTQWATCH_RETURN_IF_ERROR(subject_->Run(kernel));
  PTQWATCH_RETURN_IF_ERROR(subject_->Synchronize());
  theirs_.assign(memory, memory + size);
  std::memcpy(memory, before_.data(), size);
  PTQWATCH_RETURN_IF_ERROR(loops_.Run(kernel));
  ++compared_;
  if (const auto* scales = std::get_if<ChannelScales>(&kernel)) {
    AcceptOtherPowers(*scales, memory, theirs_);
  }
  if (std::memcmp(theirs_.data(), memory, size) != 0) AcceptOtherNans(memory, theirs_);
  if (!first_difference_.empty() || std::memcmp(theirs_.data(), memory, size) == 0) {
    return absl::OkStatus();
  }
  const auto at = std::mismatch(theirs_.begin(), theirs_.end(), memory).first - theirs_.begin();
  int64_t differ = 0;
  for (size_t i = 0; i < size; ++i) differ += theirs_[i] != memory[i] ? 1 : 0;
  first_difference_ = internal::StrCat("kernel ", compared_, ", ", KernelName(kernel), ": ", differ,
                                       " bytes differ, the first at byte ", at, " of the arena");
  return absl::InternalError(first_difference_);
}

}  // namespace ptqwatch::testing
