#include "ptqwatch/verdict_options.h"

#include <cmath>
#include <string_view>

#include "base/strings.h"

namespace ptqwatch {

absl::Status Validate(const VerdictOptions& options) {
  const auto check = [](std::string_view field, double value, double least,
                        bool more) -> absl::Status {
    if (std::isfinite(value) && (more ? value > least : value >= least)) return absl::OkStatus();
    return absl::InvalidArgumentError(internal::StrCat("VerdictOptions.", field, " = ", value,
                                                       ": must be ",
                                                       more ? "more than " : "at least ", least));
  };
  for (const absl::Status& status : {check("plateau_sigmas", options.plateau_sigmas, 0, true),
                                     check("decay_sigmas", options.decay_sigmas, 0, true),
                                     check("floor_nats", options.floor_nats, 0, false),
                                     check("plateau_ratio", options.plateau_ratio, 1, false),
                                     check("decay_ratio", options.decay_ratio, 1, false)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch
