// SPDX-License-Identifier: Apache-2.0
//
// What the lanes ask of a connected TCP socket: tuning, progress of the kernel's side, and the two ways of ending it.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/settings.h"
#include "base/unique_fd.h"

namespace tidewire::transport::tcp {

// Buffers (settings.socket_buffer, 0 = the kernel's own), no delay, keepalive on the target's side, TCP_USER_TIMEOUT.
// Options that the kernel refuses are left as they are: none of them is needed for correctness.
void tune_socket(int fd, const Settings& settings, bool target);

struct LinkProgress {
  uint64_t bytes_acked = 0;  // by the other kernel
  uint64_t bytes_received = 0;
  uint32_t unacked_segments = 0;  // sent and not acknowledged; 0 while the other side's window is closed
  uint32_t unsent_bytes = 0;      // in the socket, not sent yet
  uint32_t window_bytes = 0;      // what the other side would take; 0 also where the kernel does not tell (before 5.4)
  uint32_t segment_bytes = 0;     // the most that one segment carries
  Nanos rtt = 0;
  Nanos rtt_variance = 0;
};
// False when the socket can't tell (not TCP).
bool link_progress(int fd, LinkProgress& progress);

// Ends the connection for every process that holds the descriptor (fork children too). Abort throws away what the
// kernel has not sent; otherwise that is still delivered before the end.
void end_connection(UniqueFd& fd, bool abort);

// "10.0.0.1:4000" of the other end, for messages; "?" when unknown.
std::string remote_name(int fd);

}  // namespace tidewire::transport::tcp
