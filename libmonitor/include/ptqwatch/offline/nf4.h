#ifndef PTQWATCH_OFFLINE_NF4_H_
#define PTQWATCH_OFFLINE_NF4_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ptqwatch {

/// Consecutive weights, row by row, that share one absmax; a block may cross rows and the last one
/// may be shorter.
inline constexpr int64_t kNf4Block = 64;

/// The 16 levels of 4-bit NormalFloat, ascending from -1 to 1: Dettmers et al. 2023, arXiv
/// 2305.14314, appendix E.
const std::array<float, 16>& Nf4Levels();

/// Two codes a byte, the earlier one in the high four bits; an odd count is filled up with code 7,
/// which is level 0. InvalidArgument for a code above 15.
absl::StatusOr<std::vector<uint8_t>> PackNf4(absl::Span<const uint8_t> codes);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_NF4_H_
