#ifndef PTQWATCH_HANDOVER_SHARED_TEXT_H_
#define PTQWATCH_HANDOVER_SHARED_TEXT_H_

#include <algorithm>
#include <array>
#include <string_view>

namespace ptqwatch::internal {

/// A text in memory that two processes share, which ends with a zero.
using SharedText = std::array<char, 512>;

/// Writes `text`, cut to what fits.
inline void Put(std::string_view text, SharedText& to) noexcept {
  const size_t length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.data(), length, to.data());
  to[length] = 0;
}

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_SHARED_TEXT_H_
