// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace tidewire {

// How every thread of the library starts: with a name (at most 15 bytes are shown) and without the program's signals, so that its handlers run
// on its own threads and none of our waits is interrupted. Left deliverable are faults, for the program's crash reports, and what ends a program
// (SIGTERM, SIGINT, SIGQUIT, SIGHUP) unless the calling thread blocks that: a signal that is sent to one of our threads alone must not wait there
// for ever. Throws std::system_error like std::thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace tidewire
