#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch {
namespace metrics_doc_test {

constexpr char kPath[] = PTQWATCH_SOURCE_DIR "/docs/metrics.md";
constexpr char kIntroduction[] = R"(# Metrics

<!-- Generated from libmonitor/report/metric_catalog.cc: PTQWATCH_WRITE_DOCS=1 report_test -->

Metrics on `/metrics`, in its order: gauges unless a type is given. Losses are in nats per token. Names and labels are added, never renamed.
`{q}` stands for the labels `method`, `bits` and `format` of a quantizer. A value that was not measured is absent; `ptqwatch_snapshot_step` is the step of the measurements.

)";

// With PTQWATCH_WRITE_DOCS set, writes the page instead of comparing it.
TEST(MetricsDoc, IsThatOfTheCatalogue) {
  const std::string expected = kIntroduction + MetricCatalogMarkdown();
  if (std::getenv("PTQWATCH_WRITE_DOCS") != nullptr) {
    std::ofstream(kPath) << expected;
    return;
  }
  std::stringstream text;
  text << std::ifstream(kPath).rdbuf();
  EXPECT_EQ(text.str(), expected) << "docs/metrics.md is out of date: see its comment. Expected:\n"
                                  << expected;
}

}  // namespace metrics_doc_test
}  // namespace ptqwatch
