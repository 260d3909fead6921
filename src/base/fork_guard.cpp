// SPDX-License-Identifier: Apache-2.0
#include "base/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace tidewire {
namespace {
std::atomic<uint32_t> generation{0};

void count_fork() { generation.fetch_add(1, std::memory_order_relaxed); }

// At load time, so that it precedes every handler that asks for the generation.
const int registered = pthread_atfork(nullptr, nullptr, count_fork);
}  // namespace

uint32_t fork_generation() {
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

void at_fork_in_child(void (*handler)()) { pthread_atfork(nullptr, nullptr, handler); }

}  // namespace tidewire
