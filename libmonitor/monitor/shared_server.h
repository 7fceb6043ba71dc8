#ifndef PTQWATCH_MONITOR_SHARED_SERVER_H_
#define PTQWATCH_MONITOR_SHARED_SERVER_H_

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ptqwatch/status.h"

namespace ptqwatch::internal {

/// News of the server beside a run, from the process that keeps it to the process of the monitor.
/// In shared memory; one writer and one reader, which never wait for each other. Texts are cut to
/// what fits.
class SharedServer {
 public:
  struct News {
    ServerStatus status = {};
    pid_t process = 0;         ///< of the server; 0 unless it serves
    std::string message = {};  ///< to announce; may be empty
    bool failed = false;       ///< whether `message` is about a failure
  };

  void Write(const News& news) noexcept {
    version_.fetch_add(1, std::memory_order_acq_rel);  // odd: being written
    state_ = news.status.state;
    process_ = news.process;
    restarts_ = news.status.restarts;
    failed_ = news.failed;
    Put(news.status.metrics, metrics_);
    Put(news.status.grpc, grpc_);
    Put(news.status.reason, reason_);
    Put(news.message, message_);
    version_.fetch_add(1, std::memory_order_acq_rel);
  }

  /// The news written after `seen`, which is 0 at first; nullopt if there are none.
  std::optional<News> Read(uint64_t& seen) const {
    const uint64_t before = version_.load(std::memory_order_acquire);
    if (before == seen || before % 2 == 1) return std::nullopt;
    News news{.status = {.state = state_,
                         .metrics = metrics_.data(),
                         .grpc = grpc_.data(),
                         .restarts = restarts_,
                         .reason = reason_.data()},
              .process = process_,
              .message = message_.data(),
              .failed = failed_};
    if (version_.load(std::memory_order_acquire) != before) return std::nullopt;
    seen = before;
    return news;
  }

 private:
  using Text = std::array<char, 512>;
  // The last character stays 0, whatever the other process does.
  static void Put(std::string_view text, Text& to) noexcept {
    const size_t length = std::min(text.size(), to.size() - 1);
    std::copy_n(text.data(), length, to.data());
    to[length] = 0;
  }

  std::atomic<uint64_t> version_{0};
  ServerState state_ = ServerState::kNone;
  pid_t process_ = 0;
  int64_t restarts_ = 0;
  bool failed_ = false;
  Text metrics_{};
  Text grpc_{};
  Text reason_{};
  Text message_{};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MONITOR_SHARED_SERVER_H_
