// SPDX-License-Identifier: Apache-2.0
//
// How fast is raw process_vm_writev into another process, with N threads? The best over call sizes of 256 KiB to 64 MiB while
// walking buffers far larger than the caches.
//   process_vm_reference [--threads 1] [--bytes 268435456] [--seconds 0.5]
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "reference.h"

namespace {

double measure(pid_t pid, const uint8_t* from, uint64_t to, uint64_t bytes, uint64_t step, unsigned threads, double seconds) {
  const uint64_t share = bytes / threads / 4096 * 4096;
  std::atomic<uint64_t> moved{0};
  std::vector<std::thread> workers;
  const double end = bench::now() + seconds;
  for (unsigned i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      const uint64_t base = i * share;
      uint64_t done = 0, offset = 0;
      while (bench::now() < end) {
        const uint64_t length = std::min(step, share - offset);
        iovec local{const_cast<uint8_t*>(from) + base + offset, length};
        iovec remote{reinterpret_cast<void*>(to + base + offset), length};
        const ssize_t written = process_vm_writev(pid, &local, 1, &remote, 1, 0);
        if (written <= 0) bench::fail("process_vm_writev");
        done += static_cast<uint64_t>(written);
        offset += static_cast<uint64_t>(written);
        if (offset >= share) offset = 0;
      }
      moved += done;
    });
  }
  for (auto& worker : workers) worker.join();
  return static_cast<double>(moved.load()) / (bench::now() - end + seconds);
}

}  // namespace

int main(int argc, char** argv) {
  const auto threads = static_cast<unsigned>(std::max(1.0, bench::number(argc, argv, "--threads", 1)));
  const auto bytes = static_cast<uint64_t>(bench::number(argc, argv, "--bytes", 256.0 * bench::kMiB));
  const double seconds = bench::number(argc, argv, "--seconds", 0.5);
  int ready[2];
  if (pipe(ready)) bench::fail("pipe");
  const pid_t child = fork();
  if (child < 0) bench::fail("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto address = reinterpret_cast<uint64_t>(bench::memory(bytes));
    if (write(ready[1], &address, sizeof(address)) != sizeof(address)) _exit(1);
    for (;;) pause();
  }
  uint64_t to = 0;
  if (read(ready[0], &to, sizeof(to)) != sizeof(to)) bench::fail("the target process did not start");
  const uint8_t* from = bench::memory(bytes);
  double best = 0;
  uint64_t best_step = 0;
  for (uint64_t step = 256 << 10; step <= 64 * bench::kMiB; step *= 4) {
    const double rate = measure(child, from, to, bytes, step, threads, seconds);
    if (rate > best) best = rate, best_step = step;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf("{\"threads\": %u, \"buffer_bytes\": %llu, \"call_bytes\": %llu, \"bytes_per_s\": %.0f}\n", threads,
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(best_step), best);
  return 0;
}
