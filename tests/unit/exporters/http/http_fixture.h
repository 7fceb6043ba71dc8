#ifndef PTQWATCH_TESTS_UNIT_EXPORTERS_HTTP_HTTP_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_EXPORTERS_HTTP_HTTP_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>

#include "feed/report_json.h"
#include "gtest/gtest.h"
#include "http/web_server.h"
#include "httplib.h"
#include "support/raw_client.h"
#include "unit/exporters/test_run.h"

namespace ptqwatch::testing {

/// A server with one run.
class HttpTest : public ::testing::Test {
 protected:
  void Create(internal::WebServer::Options options = {},
              const internal::ReportHistory::Limits& history = {}) {
    options.http.listen = {.kind = "http", .address = "127.0.0.1:0"};
    auto server = internal::WebServer::Start(std::move(options), &runs_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    run_ = MakeRun("", history);
  }
  void Start(internal::WebServer::Options options = {},
             const internal::ReportHistory::Limits& history = {}) {
    Create(std::move(options), history);
    run_->Show();
  }
  std::unique_ptr<TestRun> MakeRun(const std::string& name,
                                   const internal::ReportHistory::Limits& history = {}) {
    internal::ReportForms forms;
    internal::AddJsonForms(forms);
    return std::make_unique<TestRun>(&runs_, name, forms, history, [this] { server_->Wake(); });
  }
  template <typename Change>
  void SetMonitor(Change change) {
    run_->Set([&](RunStatus& status) { change(status.monitor); });
  }
  const std::string& address() const { return server_->address(); }
  httplib::Result Get(const std::string& path, const httplib::Headers& headers = {}) const {
    return httplib::Client("127.0.0.1", PortOf(address())).Get(path.c_str(), headers);
  }

  internal::ServedRuns runs_;
  std::unique_ptr<internal::WebServer> server_;
  std::unique_ptr<TestRun> run_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_EXPORTERS_HTTP_HTTP_FIXTURE_H_
