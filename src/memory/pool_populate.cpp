// SPDX-License-Identifier: Apache-2.0
#include "memory/pool_populate.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/processors.h"
#include "base/thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tidewire {
namespace {

constexpr uint64_t kChunk = uint64_t{32} << 20;         // a thread takes so much at a time
constexpr uint64_t kParallelFrom = uint64_t{64} << 20;  // below this starting threads costs more than it saves
constexpr unsigned kMaxThreads = 16;

uint64_t read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = UINT64_MAX;  // also for "max"
  if (!(file >> value)) return UINT64_MAX;
  return value;
}

// Version 2 cgroups, from the process's own up to the root: each may have a limit.
uint64_t cgroup_room() {
  std::ifstream file("/proc/self/cgroup");
  uint64_t room = UINT64_MAX;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string path = line.substr(3); path.size() > 1; path = path.substr(0, path.rfind('/'))) {
      const uint64_t limit = read_number("/sys/fs/cgroup" + path + "/memory.max");
      const uint64_t used = read_number("/sys/fs/cgroup" + path + "/memory.current");
      if (limit == UINT64_MAX || used == UINT64_MAX) continue;
      room = std::min(room, limit > used ? limit - used : 0);
    }
  }
  return room;
}

// One chunk; 0 or an errno.
int populate_chunk(uint64_t address, uint64_t length, uint64_t offset, int memfd) {
  static std::atomic<bool> no_advice{false};  // before Linux 5.14
  if (!no_advice.load(std::memory_order_relaxed)) {
    int result;
    do {
      result = madvise(reinterpret_cast<void*>(address), length, MADV_POPULATE_WRITE);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    if (errno != EINVAL) return errno == EFAULT || errno == EHWPOISON ? ENOMEM : errno;
    no_advice.store(true, std::memory_order_relaxed);
  }
  // The file gets its pages first, so that touching them below can't fail.
  if (fallocate(memfd, 0, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) return errno;
  for (uint64_t at = 0; at < length; at += 4096) *reinterpret_cast<volatile char*>(address + at) = 0;
  return 0;
}

}  // namespace

uint64_t available_memory() {
  uint64_t available = UINT64_MAX;
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    if (name == "MemAvailable:") {
      file >> available;
      available *= 1024;
      break;
    }
    std::getline(file, unit);
  }
  return std::min(available, cgroup_room());
}

Status check_available_memory(uint64_t length, const char* what) {
  const uint64_t available = available_memory();
  if (length <= available) return {};
  return Status::error(
      Code::kNoMemory,
      "{}: {} bytes asked, {} available on this machine or in this container; ask for less or free memory", what,
      length, available);
}

Status populate(uint64_t address, uint64_t length, int memfd) {
  std::atomic<uint64_t> next{0};
  std::atomic<int> error{0};
  const auto work = [&] {
    while (error.load(std::memory_order_relaxed) == 0) {
      const uint64_t offset = next.fetch_add(kChunk, std::memory_order_relaxed);
      if (offset >= length) return;
      const int failed = populate_chunk(address + offset, std::min(kChunk, length - offset), offset, memfd);
      if (failed != 0) error.store(failed, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> helpers;
  if (length >= kParallelFrom) {
    const unsigned threads = std::min(processors(), kMaxThreads);
    for (unsigned i = 1; i < threads; ++i) {
      try {
        helpers.push_back(start_thread("tw-populate", work));
      } catch (const std::system_error&) {
        break;  // fewer threads are slower, not wrong
      }
    }
  }
  work();
  for (auto& helper : helpers) helper.join();
  if (error.load() == 0) return {};
  return errno_status(error.load(), fmt::format("getting the pages of a {} byte allocation", length));
}

}  // namespace tidewire
