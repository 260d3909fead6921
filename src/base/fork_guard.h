// SPDX-License-Identifier: Apache-2.0
//
// Which generation of forks this process is: 0 in the first process, one more in each forked child. What was made in another generation (threads,
// sockets, locks) must not be used.
#pragma once

#include <cstdint>

namespace tidewire {

uint32_t fork_generation();
// Runs in each forked child, right after fork; only async-signal-safe things and plain memory writes are allowed. Registered once, never removed.
void at_fork_in_child(void (*handler)());

}  // namespace tidewire
