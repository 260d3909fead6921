// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/local_socket.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "transport/shm/wire.h"

namespace tidewire::transport::shm {
namespace {

constexpr int kBacklog = 128;

struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<Address> abstract_address(const std::string& name) {
  Address result;
  if (name.empty() || name.size() > 100) {
    return Status::error(Code::kInvalidArgument, "bad local socket name '{}': 1 to 100 bytes", name.substr(0, 100));
  }
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Result<UniqueFd> new_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_status(errno, "local socket");
  return socket;
}

}  // namespace

Result<UniqueFd> listen_local(const std::string& name) {
  TW_ASSIGN_OR_RETURN(const Address where, abstract_address(name));
  TW_ASSIGN_OR_RETURN(UniqueFd socket, new_socket());
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&where.address), where.length) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return errno_status(errno, "listening on local socket '" + name + "'");
  }
  return socket;
}

Result<UniqueFd> connect_local(const std::string& name) {
  TW_ASSIGN_OR_RETURN(const Address where, abstract_address(name));
  TW_ASSIGN_OR_RETURN(UniqueFd socket, new_socket());
  int result;
  do {
    result = connect(socket.get(), reinterpret_cast<const sockaddr*>(&where.address), where.length);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return socket;
  if (errno == EAGAIN) return Status(Code::kBusy, "local socket '" + name + "' has a full queue");
  return errno_status(errno, "connecting to local socket '" + name + "'");
}

Result<Credentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return errno_status(errno, "credentials of a local peer");
  return Credentials{credentials.pid, credentials.uid};
}

bool trusted(const Credentials& credentials) {
  return credentials.uid == geteuid() || credentials.uid == 0;
}

UniqueFd watch_process(pid_t pid) {
  if (pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // CLOEXEC by itself; missing before Linux 5.3
}

Status send_packet(int socket, const void* packet, size_t size, std::span<const int> descriptors) {
  iovec part{const_cast<void*>(packet), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFiles)];
  if (!descriptors.empty()) {
    std::memset(control, 0, sizeof control);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(size)) return {};
  if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return Status(Code::kBusy, "the local socket is full");
  const int error = sent < 0 ? errno : EPIPE;
  return Status(Code::kPeerGone, errno_status(error, "sending on a local socket").message());
}

Status receive_packet(int socket, bool want_descriptors, Received* out) {
  out->bytes.resize(kMaxPacket + 1);
  out->descriptors.clear();
  iovec part{out->bytes.data(), out->bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFiles)];
  if (want_descriptors) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  ssize_t size;
  do {
    size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    out->bytes.clear();
    if (errno == EAGAIN) return {};
    return Status(Code::kPeerGone, errno_status(errno, "receiving on a local socket").message());
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
      out->descriptors.emplace_back(descriptor);
    }
  }
  out->descriptors_lost = want_descriptors && (message.msg_flags & MSG_CTRUNC) != 0;
  out->bytes.resize(static_cast<size_t>(size));
  if (size == 0) return Status(Code::kPeerGone, "the other end closed its local socket");
  if (out->bytes.size() > kMaxPacket || (message.msg_flags & MSG_TRUNC) != 0) {
    return Status::error(Code::kProtocol, "a packet on a local socket is larger than {} bytes", kMaxPacket);
  }
  return {};
}

}  // namespace tidewire::transport::shm
