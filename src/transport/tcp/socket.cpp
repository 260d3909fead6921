// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/tcp.h>  // tcp_info of the kernel: glibc's lacks bytes_acked
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace tidewire::transport::tcp {
namespace {

// Over loopback there is no latency to cover, and what fits the processor's caches moves faster
// (docs/decisions/tcp-data-path.md).
constexpr int64_t kLoopbackBuffer = 256 << 10;

void set_int(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// Both ends on this host.
bool is_local(int fd) {
  const auto host_of = [](const sockaddr_storage& address) -> std::string {
    if (address.ss_family == AF_INET) {
      return std::string(reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr),
                         sizeof(in_addr));
    }
    return std::string(reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr),
                       sizeof(in6_addr));
  };
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof(here);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
  size = sizeof(there);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return false;
  return here.ss_family == there.ss_family && host_of(here) == host_of(there);
}

}  // namespace

void tune_socket(int fd, const Settings& settings, bool target) {
  const bool local = is_local(fd);
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // A control that paces (BBR) spends a fifth of the processor on timers that loopback does not need. Not every process
  // may have cubic.
  if (local && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  }
  if (settings.socket_buffer > 0) {
    const int64_t most = local ? kLoopbackBuffer : 256 << 20;
    const int bytes = static_cast<int>(std::min(settings.socket_buffer, most));
    set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
    set_int(fd, SOL_SOCKET, SO_RCVBUF, bytes);
  }
  // The second line behind the lanes' own stall detection. It also ends a connection whose other side takes nothing for
  // so long, which must be the deadlines' business first: hence not below the transfer timeout.
  const Nanos patience =
      std::max(settings.transfer_timeout + settings.transfer_timeout / 4, 10 * settings.stall_timeout);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<Nanos>(patience / kMillisecond, 86'400'000)));
  if (target) {
    // An initiator's host that vanished while idle: nothing else would ever tell.
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  }
}

bool link_progress(int fd, LinkProgress& progress) {
  tcp_info info{};  // an older kernel fills less of it
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  progress.bytes_acked = info.tcpi_bytes_acked;
  progress.bytes_received = info.tcpi_bytes_received;
  progress.unacked_segments = info.tcpi_unacked;
  progress.unsent_bytes = info.tcpi_notsent_bytes;
  progress.window_bytes = info.tcpi_snd_wnd;
  progress.segment_bytes = info.tcpi_snd_mss;
  progress.rtt = static_cast<Nanos>(info.tcpi_rtt) * kMicrosecond;
  progress.rtt_variance = static_cast<Nanos>(info.tcpi_rttvar) * kMicrosecond;
  return true;
}

void end_connection(UniqueFd& fd, bool abort) {
  if (!fd.valid()) return;
  if (abort) {
    const linger now{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    // Connecting to "nothing" disconnects at once with a reset, also where a forked child keeps the descriptor open.
    sockaddr nothing{};
    nothing.sa_family = AF_UNSPEC;
    connect(fd.get(), &nothing, sizeof(nothing));
  }
  shutdown(fd.get(), SHUT_RDWR);
  fd.reset();
}

std::string remote_name(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    return fmt::format("{}:{}", text, ntohs(v4->sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    return fmt::format("[{}]:{}", text, ntohs(v6->sin6_port));
  }
  return "?";
}

}  // namespace tidewire::transport::tcp
