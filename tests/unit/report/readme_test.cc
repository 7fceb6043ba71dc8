#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ptqwatch/metric_catalog.h"

namespace ptqwatch {
namespace {

TEST(Readme, HasTheTableOfMetrics) {
  std::ifstream file(PTQWATCH_SOURCE_DIR "/README.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(MetricCatalogMarkdown()), std::string::npos)
      << "README.md must have this table:\n"
      << MetricCatalogMarkdown();
}

}  // namespace
}  // namespace ptqwatch
