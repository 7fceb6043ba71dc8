#ifndef PTQWATCH_POOLED_LOSS_H_
#define PTQWATCH_POOLED_LOSS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ptqwatch/quantizer.h"

namespace ptqwatch {

enum class ProbeStatus;  // report.h, which includes this

/// The loss of the watched quantizer on one set of probe batches, as sums over its units
/// (sequences): of each unit's loss increase x in nats, full-precision loss z, weight y (tokens,
/// unless the losses have other weights), their squares and their products.
struct ProbeSet {
  int64_t set = 0;  ///< 0: the probe batches of all other measurements
  ProbeStatus status{};
  std::string status_detail = {};
  int64_t units = 0;
  int64_t tokens = 0;
  double change = 0;            ///< x
  double loss = 0;              ///< z
  double weight = 0;            ///< y
  double change_squared = 0;    ///< x^2
  double loss_squared = 0;      ///< z^2
  double weight_squared = 0;    ///< y^2
  double change_by_loss = 0;    ///< x z
  double change_by_weight = 0;  ///< x y
  friend bool operator==(const ProbeSet&, const ProbeSet&) = default;
};

/// The loss increase of the watched quantizer (Verdict::method) on all sets of probe batches
/// together (MonitorOptions::further_probe_sets). Its numbers are absent unless all sets were
/// measured: numbers from fewer sets would not be comparable.
struct PooledLoss {
  std::optional<QuantizationMethod> method = {};
  int bits = 0;
  std::optional<std::string> format = {};        ///< absent: implied by the method
  ProbeStatus status{};                          ///< of the first set that was not measured
  std::string status_detail = {};                ///< names all of these sets
  std::optional<double> delta_nats = {};         ///< CE(W_hat) - CE(W)
  std::optional<double> delta_stderr_nats = {};  ///< standard error over units
  std::optional<double> error_ratio = {};        ///< CE(W_hat) / CE(W) - 1
  std::optional<double> error_ratio_stderr = {};
  int64_t probe_tokens = 0;
  std::vector<ProbeSet> sets = {};  ///< in order
  friend bool operator==(const PooledLoss&, const PooledLoss&) = default;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_POOLED_LOSS_H_
