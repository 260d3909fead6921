// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench idle`: how much processor an engine uses when nothing moves, and when many threads wait for something slow. Slow is a
// target of our own that is stopped for the time, or, with --target, whatever the path to it makes slow (a shaped link).
#include <fmt/format.h>

#include <atomic>
#include <iostream>
#include <thread>

#include "cli/bench_commands.h"
#include "cli/bench_pair.h"

namespace tidewire::cli::bench {
namespace {

struct IdleOptions {
  Options common;
  unsigned waiters = 32;
  std::string bytes = "256MiB";  // of all waiters' transfers together
};

struct Usage {
  double initiator = 0, target = 0;  // shares of one processor
};

// What both processes use while this thread sleeps.
Usage watch(const Pair& pair, double seconds) {
  const double own = own_cpu_seconds(), other = pair.target() ? pair.target()->cpu_seconds() : 0, start = now();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double elapsed = now() - start;
  return {(own_cpu_seconds() - own) / elapsed, pair.target() ? (pair.target()->cpu_seconds() - other) / elapsed : 0};
}

void print(const char* what, const Usage& usage, bool target) {
  fmt::print("{:<44} initiator {:>8.4f} % of a processor", what, usage.initiator * 100);
  if (target) fmt::print(", target {:>8.4f} %", usage.target * 100);
  fmt::print("\n");
  std::cout.flush();
}

void run(const IdleOptions& options) {
  const uint64_t bytes = parse_bytes(options.bytes), share = bytes / options.waiters;
  const Pair pair(options.common, bytes);
  const double seconds = options.common.seconds;
  // A transfer first, so that connections exist: those of an engine in use must be quiet too.
  transfer(pair.engine(), pair.peer(), TW_WRITE, {pair.local()}, {pair.remote()}, {std::min<uint64_t>(bytes, 1 << 20)});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const Usage idle = watch(pair, seconds);
  print("idle, connected", idle, pair.target() != nullptr);

  if (pair.target()) pair.target()->stop();
  std::atomic<unsigned> ended{0}, failed{0};
  std::vector<tw_batch_t> batches;
  for (unsigned i = 0; i < options.waiters; ++i) {
    const uint64_t local = pair.local() + i * share, remote = pair.remote() + i * share;
    batches.push_back(submit(pair.engine(), pair.peer(), TW_WRITE, &local, &remote, &share, 1, seconds * 4 + 5));
  }
  std::vector<std::thread> waiters;
  for (const tw_batch_t batch : batches) {
    waiters.emplace_back([&, batch] {
      if (tw_batch_wait(batch, UINT64_MAX, nullptr) != TW_OK) ++failed;
      ++ended;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until socket buffers are full
  const Usage waiting = watch(pair, seconds);
  const unsigned ended_early = ended;
  if (pair.target()) pair.target()->resume();
  print(fmt::format("{} threads waiting, {}", options.waiters, pair.target() ? "target stopped" : "slow path").c_str(), waiting,
        pair.target() != nullptr);
  if (ended_early > 0) {
    fmt::print("{} of them ended within the {} s: the path is not slow enough for this figure, give more --bytes\n", ended_early, seconds);
  }
  for (const tw_batch_t batch : batches) tw_batch_cancel(batch);
  for (auto& waiter : waiters) waiter.join();
  for (const tw_batch_t batch : batches) tw_batch_release(batch);
  write_json(options.common, {{"bench", "idle"},
                              {"seconds", seconds},
                              {"waiters", options.waiters},
                              {"idle_initiator", idle.initiator},
                              {"idle_target", idle.target},
                              {"waiting_initiator", waiting.initiator},
                              {"ended_early", ended_early}});
}

}  // namespace

void add_idle(CLI::App* bench) {
  auto* command = bench->add_subcommand("idle", "Processor use of an idle engine, and of threads that wait for a slow transfer");
  auto options = std::make_shared<IdleOptions>();
  options->common.seconds = 5;
  options->common.protocol = "tcp";
  add_options(command, &options->common);
  command->add_option("--waiters", options->waiters, "threads that wait")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--bytes", options->bytes, "bytes of all their transfers together")->capture_default_str();
  command->callback([options] { run_bench("idle", [&] { run(*options); }); });
}

}  // namespace tidewire::cli::bench
