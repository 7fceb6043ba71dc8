#include "probes/work_share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "absl/strings/str_join.h"
#include "analysis/decay_shape.h"
#include "base/strings.h"
#include "probes/average_measurement.h"
#include "probes/layer_costs.h"
#include "probes/mixed_precision_probe.h"
#include "report/watched_quantizer.h"

namespace ptqwatch::internal {
namespace {

// Multiply-adds of one core in a second, in products of matrices.
constexpr double kProductRate = 1.5e10;
// The parts of curvature, in forward passes over its batches: a gradient and the products of a
// search for one eigenvalue, those of the edge of stability and of the trace, and for each
// quantizer a product and the losses along its error.
constexpr double kGradientPasses = 3;
constexpr double kSearchPasses = 42;
constexpr double kEdgePasses = 30;
constexpr double kTracePasses = 54;
constexpr double kErrorPasses = 10;
// The share of the probe batches that a comparison takes, about: it ends when it is sure enough.
constexpr double kComparedShare = 0.25;
// The most mixtures that are tried, in forward passes.
constexpr double kMixturePasses = 3;

// Rows that the batches' products have, about: tokens, or sequences of other inputs.
double RowsOf(const std::vector<Batch>& batches) {
  int64_t rows = 0;
  for (const Batch& batch : batches) {
    if (batch.empty() || !batch[0].defined()) {
      ++rows;
      continue;
    }
    const at::Tensor& first = batch[0];
    rows += at::isIntegralType(first.scalar_type(), /*includeBool=*/true) || first.dim() == 0
                ? first.numel()
                : first.size(0);
  }
  return static_cast<double>(rows);
}

// Fixed estimates of the seconds of each part.
struct WorkSeconds {
  double probe = 0;              // one pass over the probe batches that are compared
  double calibration = 0;        // the Gram matrices
  double curvature = 0;          // one pass over the curvature batches
  double search = 0;             // the eigenvectors
  double further_set = 0;        // two passes over a further set of probe batches
  std::vector<double> quantize;  // each quantizer, without calibration
};

WorkSeconds EstimateWork(const ModelSession& session, const MonitorOptions& options) {
  const CapturePlan& plan = session.plan();
  const double a_row = static_cast<double>(plan.covered_parameters) / kProductRate;
  WorkSeconds seconds;
  const auto pass = [&](const std::vector<Batch>& batches) {
    return a_row * std::min(RowsOf(batches), static_cast<double>(options.max_probe_tokens));
  };
  seconds.probe = kComparedShare * pass(session.probe());
  if (!session.further_probe().empty()) {
    seconds.further_set = 2 * pass(session.further_probe().front());
  }
  const double rows = RowsOf(session.calibration());
  seconds.calibration =
      a_row * rows + CountLayerCosts(plan, {}, static_cast<int64_t>(rows)).gram_batch;
  seconds.curvature = a_row * RowsOf(session.curvature());
  const int eigenvalues =
      options.curvature.top_eigenvalues + (options.curvature.bottom_eigenvalue ? 1 : 0);
  seconds.search = (kGradientPasses + kSearchPasses * eigenvalues) * seconds.curvature;
  seconds.quantize = CountQuantizeSeconds(plan, options.quantizers, options.overrides);
  return seconds;
}

}  // namespace

std::vector<int64_t> DealWork(absl::Span<const WorkItem> items, double calibration_seconds,
                              int64_t ranks, double search_seconds) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return items[a].seconds > items[b].seconds; });
  // With more ranks than items, the last ranks have nothing to do.
  const size_t used = std::min(static_cast<size_t>(ranks), std::max<size_t>(1, items.size()));
  std::vector<double> load(used, 0);
  std::vector<bool> calibrates(used, false);
  std::vector<bool> searches(used, false);
  std::vector<int64_t> owners(items.size(), 0);
  for (const size_t item : order) {
    const auto after = [&](size_t rank) {
      const bool calibration = items[item].calibrates && !calibrates[rank];
      const bool search = items[item].searches && !searches[rank];
      return load[rank] + items[item].seconds + (calibration ? calibration_seconds : 0) +
             (search ? search_seconds : 0);
    };
    size_t best = 0;
    for (size_t rank = 1; rank < used; ++rank) {
      if (after(rank) < after(best)) best = rank;
    }
    load[best] = after(best);
    calibrates[best] = calibrates[best] || items[item].calibrates;
    searches[best] = searches[best] || items[item].searches;
    owners[item] = static_cast<int64_t>(best);
  }
  return owners;
}

WorkShare ShareOfWork(const ModelSession& session, const MonitorOptions& options) {
  WorkShare share{.rank = options.rank.value_or(0), .ranks = options.ranks.value_or(1)};
  share.quantizers.assign(options.quantizers.size(), 0);
  share.further_sets.assign(session.further_probe().size(), 0);
  if (share.ranks == 1) return share;

  const WorkSeconds seconds = EstimateWork(session, options);
  const size_t count = options.quantizers.size();
  const size_t finest = FinestQuantizer(options.quantizers);
  const size_t watched = WatchedQuantizer(options.quantizers).value_or(0);
  const bool curvature = options.curvature.enabled;
  // Places in `items` of the trace, the edge of stability, each quantizer and averaging.
  std::vector<WorkItem> items;
  std::optional<size_t> trace, edge;
  std::vector<std::optional<size_t>> places(count);
  const auto add = [&](WorkItem item) {
    items.push_back(item);
    return items.size() - 1;
  };
  const auto quantizer = [&](size_t i) {
    return WorkItem{.seconds = seconds.quantize[i] + seconds.probe +
                               (curvature ? kErrorPasses * seconds.curvature : 0),
                    .calibrates = true,
                    .searches = curvature};
  };
  if (curvature) {
    trace = add({.seconds = kTracePasses * seconds.curvature, .searches = true});
    edge = add({.seconds = kEdgePasses * seconds.curvature, .searches = true});
  }
  const std::optional<BitPair> pair =
      curvature && options.mixed_precision ? ChooseBitPair(options.quantizers) : std::nullopt;
  if (pair) {
    WorkItem item = quantizer(pair->low);
    item.seconds += quantizer(pair->raised).seconds + kMixturePasses * seconds.probe;
    places[pair->low] = places[pair->raised] = add(item);
  }
  for (size_t i = 0; i < count; ++i) {
    if (!places[i]) places[i] = add(quantizer(i));
  }
  if (options.noise_relative_norm > 0) items[*places[finest]].seconds += seconds.probe;
  std::optional<size_t> averaging;
  if (options.averaging.enabled) {
    double averages = options.averaging.decay > 0 ? 2 : 1;
    if (options.averaging.merges) {
      averages += static_cast<double>(MergesOf(options.averaging.window).size());
    }
    double one = seconds.probe;
    for (const size_t averaged : AveragedQuantizers(options.quantizers, seconds.quantize)) {
      one += seconds.probe + seconds.quantize[averaged];
    }
    averaging = add({averages * one, /*calibrates=*/true});
  }
  const size_t first_set = items.size();
  for (size_t i = 0; i < share.further_sets.size(); ++i) {
    add({seconds.further_set + seconds.quantize[watched], /*calibrates=*/true});
  }

  const std::vector<int64_t> owners =
      DealWork(items, seconds.calibration, share.ranks, seconds.search);
  for (size_t i = 0; i < count; ++i) share.quantizers[i] = owners[*places[i]];
  share.noise = share.quantizers[finest];
  share.mixed_precision = pair ? share.quantizers[pair->low] : 0;
  share.averaging = averaging ? owners[*averaging] : 0;
  for (size_t i = 0; i < share.further_sets.size(); ++i) {
    share.further_sets[i] = owners[first_set + i];
  }
  share.edge = edge ? owners[*edge] : 0;
  // Cooldowns need no curvature, but measure the trace if there is some.
  share.trace = trace ? owners[*trace] : share.quantizers.front();
  return share;
}

std::string WorkShare::Describe(const MonitorOptions& options) const {
  if (ranks == 1) return "";
  std::map<int64_t, std::vector<std::string>> parts;
  for (size_t i = 0; i < quantizers.size(); ++i) {
    parts[quantizers[i]].push_back(ShortName(KeyOf(options.quantizers[i])));
  }
  if (options.curvature.enabled) {
    parts[trace].push_back("trace");
    parts[edge].push_back("edge of stability");
  }
  if (options.averaging.enabled) parts[averaging].push_back("averages");
  if (options.noise_relative_norm > 0) parts[noise].push_back("noise");
  for (size_t i = 0; i < further_sets.size(); ++i) {
    parts[further_sets[i]].push_back(StrCat("probe set ", i + 1));
  }
  std::string text = StrCat("rank ", rank, " of ", ranks, ", which share the measurements:\n");
  for (const auto& [owner, names] : parts) {
    text += StrFormat("  rank %-4d %s%s\n", owner, absl::StrJoin(names, ", "),
                      owner == rank ? " (this one)" : "");
  }
  if (parts.find(rank) == parts.end()) {
    text += StrFormat("  rank %-4d the full-precision loss alone (this one)\n", rank);
  }
  return text;
}

std::string OwnerDetail(int64_t owner) { return StrCat("left to rank ", owner); }

}  // namespace ptqwatch::internal
