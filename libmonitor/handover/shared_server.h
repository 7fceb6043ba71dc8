#ifndef PTQWATCH_HANDOVER_SHARED_SERVER_H_
#define PTQWATCH_HANDOVER_SHARED_SERVER_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "handover/shared_text.h"
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
    Body body{.state = news.status.state,
              .process = news.process,
              .restarts = news.status.restarts,
              .failed = news.failed};
    Put(news.status.metrics, body.metrics);
    Put(news.status.grpc, body.grpc);
    Put(news.status.reason, body.reason);
    Put(news.message, body.message);
    Words words{};
    std::memcpy(words.data(), &body, sizeof(body));
    version_.fetch_add(1, std::memory_order_relaxed);  // odd: being written
    // A reader who sees one of the new words also sees the odd version.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.fetch_add(1, std::memory_order_release);
  }

  /// The news written after `seen`, which is 0 at first; nullopt if there are none.
  std::optional<News> Read(uint64_t& seen) const {
    const uint64_t before = version_.load(std::memory_order_acquire);
    if (before == seen || before % 2 == 1) return std::nullopt;
    Words words;
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) != before) return std::nullopt;
    seen = before;
    Body body;
    std::memcpy(static_cast<void*>(&body), words.data(), sizeof(body));
    return News{.status = {.state = body.state,
                           .metrics = body.metrics.data(),
                           .grpc = body.grpc.data(),
                           .restarts = body.restarts,
                           .reason = body.reason.data()},
                .process = body.process,
                .message = body.message.data(),
                .failed = body.failed};
  }

 private:
  struct Body {
    ServerState state = ServerState::kNone;
    pid_t process = 0;
    int64_t restarts = 0;
    bool failed = false;
    SharedText metrics{};
    SharedText grpc{};
    SharedText reason{};
    SharedText message{};
  };
  static constexpr size_t kWords = (sizeof(Body) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  using Words = std::array<uint64_t, kWords>;

  std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_HANDOVER_SHARED_SERVER_H_
