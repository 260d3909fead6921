// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench peers`: what it costs an engine to know many peers. Every peer is opened under a name of its own; names of one target
// make as many records as there are names (bench/peers.py gives one target 10,000 addresses in a network namespace).
#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <numeric>
#include <thread>

#include "cli/bench_commands.h"

namespace tidewire::cli::bench {
namespace {

struct PeersOptions {
  Options common;
  std::string names_file;
};

size_t entries(const char* folder) {
  DIR* directory = opendir(folder);
  if (!directory) return 0;
  size_t count = 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

// Connections that are being closed are closed then.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

void run(const PeersOptions& options) {
  std::vector<std::string> names = options.common.targets;
  if (!options.names_file.empty()) {
    std::ifstream file(options.names_file);
    for (std::string name; std::getline(file, name);) {
      if (!name.empty()) names.push_back(name);
    }
  }
  if (names.size() < 2) throw BenchError("give the peers' names: --names FILE (one a line) or --target with several");
  const Engine engine(options.common, options.common.local.empty() ? route_source(names.front()) : options.common.local);
  Options quiet = options.common;
  quiet.memory = "foreign";
  const Buffer buffer(engine, quiet.memory, 1 << 20);
  engine.open(names.front());  // what happens once in an engine's life
  const size_t threads = entries("/proc/self/task"), descriptors = entries("/proc/self/fd");
  const uint64_t memory = resident_bytes();
  std::vector<double> times;
  const double cpu = own_cpu_seconds();
  // What half of the peers took, e.g. a bounded set of connections, is not taken again by the other half unless each peer costs.
  size_t threads_half = 0, descriptors_half = 0;
  for (size_t i = 1; i < names.size(); ++i) {
    if (i == names.size() / 2) settle(), threads_half = entries("/proc/self/task"), descriptors_half = entries("/proc/self/fd");
    const double began = now();
    engine.open(names[i]);
    times.push_back(now() - began);
  }
  const double cpu_used = own_cpu_seconds() - cpu;
  settle();
  const size_t threads_after = entries("/proc/self/task"), descriptors_after = entries("/proc/self/fd");
  const double count = static_cast<double>(times.size());
  // The last tenth shows whether adding gets dearer with what is held.
  const std::vector<double> last(times.end() - static_cast<ptrdiff_t>(std::max<size_t>(1, times.size() / 10)), times.end());
  // One more transfer proves that the engine still works with all of them held.
  const tw_peer_t peer = engine.open(names.back());
  uint64_t address = 0, length = 0;
  check(tw_peer_first_region(engine.handle(), peer, &address, &length), "the last peer's buffer");
  transfer(engine, peer, TW_WRITE, {buffer.address()}, {address}, {std::min<uint64_t>(length, 64)});

  fmt::print("{} peers held; adding one: median {:.3f} ms, p99 {:.3f} ms, mean {:.3f} ms, last tenth {:.3f} ms, own CPU {:.3f} ms\n", names.size(),
             median(times) * 1e3, percentile(times, 0.99) * 1e3, std::accumulate(times.begin(), times.end(), 0.0) / count * 1e3, median(last) * 1e3, cpu_used / count * 1e3);
  fmt::print("threads {} -> {} -> {}, descriptors {} -> {} -> {} (none, half, all held), memory {:.1f} KB a peer\n", threads, threads_half,
             threads_after, descriptors, descriptors_half, descriptors_after,
             (static_cast<double>(resident_bytes()) - static_cast<double>(memory)) / count / 1e3);
  write_json(options.common, {{"bench", "peers"},
                              {"peers", names.size()},
                              {"median_s", median(times)},
                              {"p99_s", percentile(times, 0.99)},
                              {"mean_s", std::accumulate(times.begin(), times.end(), 0.0) / count},
                              {"last_tenth_median_s", median(last)},
                              {"cpu_s", cpu_used / count},
                              {"threads_before", threads},
                              {"threads_half", threads_half},
                              {"threads_after", threads_after},
                              {"descriptors_before", descriptors},
                              {"descriptors_half", descriptors_half},
                              {"descriptors_after", descriptors_after}});
}

}  // namespace

void add_peers(CLI::App* bench) {
  auto* command = bench->add_subcommand("peers", "What knowing thousands of peers costs");
  auto options = std::make_shared<PeersOptions>();
  add_options(command, &options->common);
  command->add_option("--names", options->names_file, "file with one peer name a line")->check(CLI::ExistingFile);
  command->callback([options] { run_bench("peers", [&] { run(*options); }); });
}

}  // namespace tidewire::cli::bench
