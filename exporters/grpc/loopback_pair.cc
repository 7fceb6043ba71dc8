#include "loopback_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"

namespace ptqwatch::internal {
namespace {

struct Address {
  sockaddr_in value{};
  socklen_t size = sizeof(sockaddr_in);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&value); }
};

absl::Status Error(const char* what) { return absl::ErrnoToStatus(errno, what); }

}  // namespace

absl::StatusOr<LoopbackPair> MakeLoopbackPair() {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listening < 0) return Error("cannot make a socket");
  const absl::Cleanup close_listening = [listening] { close(listening); };
  Address address;
  address.value.sin_family = AF_INET;
  address.value.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listening, address.get(), address.size) != 0 || listen(listening, 1) != 0 ||
      getsockname(listening, address.get(), &address.size) != 0) {
    return Error("cannot listen on loopback");
  }
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client < 0) return Error("cannot make a socket");
  absl::Cleanup close_client = [client] { close(client); };
  Address own;
  if (connect(client, address.get(), address.size) != 0 ||
      getsockname(client, own.get(), &own.size) != 0) {
    return Error("cannot connect on loopback");
  }
  // Somebody else may have been first.
  while (true) {
    Address peer;
    const int server = accept4(listening, peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (server < 0) return Error("cannot accept on loopback");
    if (peer.value.sin_port == own.value.sin_port) {
      if (fcntl(client, F_SETFL, O_NONBLOCK) != 0) {
        close(server);
        return Error("cannot set up a connection");
      }
      std::move(close_client).Cancel();
      return LoopbackPair{client, server};
    }
    close(server);
  }
}

}  // namespace ptqwatch::internal
