// SPDX-License-Identifier: Apache-2.0
//
// Abstract Unix sockets (SOCK_SEQPACKET) with credentials and descriptor passing. All sockets are non-blocking and
// CLOEXEC. An abstract name is free again as soon as its owner is gone, however it went.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tidewire::transport::shm {

// `name` without the leading NUL, at most 100 bytes.
Result<UniqueFd> listen_local(const std::string& name);
// kUnreachable when nobody listens; kBusy when the listener's queue is full: try again.
Result<UniqueFd> connect_local(const std::string& name);

struct Credentials {
  pid_t pid = 0;  // 0 when the other end is in a PID namespace that this process can't see
  uid_t uid = 0;
};
// Of the process that connected, or of the one that listened.
Result<Credentials> peer_credentials(int socket);
// Same user, or root.
bool trusted(const Credentials& credentials);
// A descriptor that becomes readable when the process ends; invalid when there is no way to have one.
UniqueFd watch_process(pid_t pid);

// Sends one packet whole, or fails: kBusy when the socket is full, otherwise kPeerGone.
Status send_packet(int socket, const void* packet, size_t size, std::span<const int> descriptors = {});

struct Received {
  std::vector<uint8_t> bytes;  // empty with OK: nothing there
  std::vector<UniqueFd> descriptors;
  bool descriptors_lost = false;  // more came than fitted, or this process is out of descriptors
};
// kPeerGone at the end of the connection; kProtocol for a packet above the largest. Descriptors are dropped unless
// wanted.
Status receive_packet(int socket, bool want_descriptors, Received* out);

}  // namespace tidewire::transport::shm
