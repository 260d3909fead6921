// SPDX-License-Identifier: Apache-2.0
//
// What the reference programs share: populated memory, pinned threads, medians. References use nothing of Tidewire, so that
// a fault of ours can't flatter our own figures.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace bench {

constexpr uint64_t kMB = 1'000'000;
constexpr uint64_t kMiB = 1 << 20;

inline double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

[[noreturn]] inline void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Populated memory; never freed, the programs are short. Shared: the same bytes in parent and child.
inline uint8_t* memory(uint64_t bytes, bool shared = false) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (address == MAP_FAILED) fail("mmap");
  std::memset(address, 1, bytes);
  return static_cast<uint8_t*>(address);
}

// Puts the calling thread on the index-th processor that the process may use.
inline void pin(unsigned index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed)) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processors[index % processors.size()], &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

inline double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto index = std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}
inline double median(const std::vector<double>& values) { return percentile(values, 0.5); }

// "--name value" from the command line.
inline std::string option(int argc, char** argv, const char* name, const char* fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (!std::strcmp(argv[i], name)) return argv[i + 1];
  }
  return fallback;
}
inline double number(int argc, char** argv, const char* name, double fallback) {
  const std::string text = option(argc, argv, name, "");
  return text.empty() ? fallback : std::atof(text.c_str());
}

}  // namespace bench
