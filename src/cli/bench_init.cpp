// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench init`: how soon a client that lends memory to a store is of use. A master and a client in this
// process: when the first put succeeds, when all of the memory is ready, and how fast its pages were had against the
// best that all processors do for pages of the same kind. Both in turn, several times, and the best of each: how fast a
// machine gives out pages depends on what it did with them before.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <tidewire/store.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iostream>
#include <iterator>
#include <thread>

#include "cli/bench_commands.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace tidewire::cli::bench {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kSteps[] = {uint64_t{8} << 20,
                               uint64_t{64} << 20};    // that a thread of the reference populates at once, in turn
constexpr auto kPoll = std::chrono::milliseconds(10);  // asking costs processor time that the pages need

struct InitOptions {
  Options common;
  std::string bytes = "8GB";
  unsigned rounds = 2;
};

// ---- the reference: nothing of the library
// ---------------------------------------------------------------------------------------------

// A shared mapping without pages; nullptr when there are not so many huge ones.
void* map_shared(uint64_t bytes, bool huge) {
  const int fd = memfd_create("tidewire-bench", MFD_CLOEXEC | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return nullptr;
  if (!huge) madvise(memory, bytes, MADV_HUGEPAGE);  // as the pool asks for
  return memory;
}

unsigned usable_processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return std::max(1, CPU_COUNT(&allowed));
}

// Bytes a second of all processors that take `step` bytes at a time.
double populate(uint64_t bytes, uint64_t step, bool huge) {
  void* memory = map_shared(bytes, huge);
  if (memory == nullptr)
    throw BenchError(fmt::format("the reference can't map {} bytes: {}", bytes, std::strerror(errno)));
  std::atomic<uint64_t> next{0};
  std::atomic<int> failed{0};
  const auto work = [&] {
    for (uint64_t at = next.fetch_add(step); at < bytes; at = next.fetch_add(step))
      if (madvise(static_cast<char*>(memory) + at, std::min(step, bytes - at), MADV_POPULATE_WRITE) != 0)
        failed = errno;
  };
  const double start = now();
  std::vector<std::thread> others;
  for (unsigned i = 1; i < usable_processors(); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  const double seconds = now() - start;
  munmap(memory, bytes);
  if (failed != 0) throw BenchError(fmt::format("MADV_POPULATE_WRITE: {}", std::strerror(failed)));
  return static_cast<double>(bytes) / seconds;
}

// Whether the pool would find so many huge pages set aside.
bool has_huge_pages(uint64_t bytes) {
  void* memory = map_shared(bytes, true);
  if (memory == nullptr) return false;
  munmap(memory, bytes);
  return true;
}

// ---- ours
// ------------------------------------------------------------------------------------------------------------------------------

struct Master {
  tw_master_t handle = 0;
  ~Master() { static_cast<void>(tw_master_destroy(handle)); }
};
struct Store {
  tw_store_t handle = 0;
  ~Store() { static_cast<void>(tw_store_destroy(handle)); }
};

struct Times {
  double first_put = 0, ready = 0;  // seconds from before the client is created
};

uint64_t ready_bytes(tw_store_t store) {
  char text[4096];
  check(tw_store_status_json(store, text, sizeof text, nullptr), "the store's status");
  uint64_t ready = 0;
  const nlohmann::json status = nlohmann::json::parse(text);
  for (const auto& segment : status.value("segments", nlohmann::json::array()))
    ready += segment.at("ready").get<uint64_t>();
  return ready;
}

int64_t put_one(tw_store_t store) {
  static const char value[4096] = {1};
  const uint64_t key_length = 5, address = reinterpret_cast<uint64_t>(value), length = sizeof value;
  const tw_store_keys keys{"first", &key_length, 1};
  int64_t result = 0;
  check(tw_store_put(store, &keys, nullptr, &address, &length, nullptr, &result), "the first put");
  return result;
}

Times lend(const InitOptions& options, uint64_t bytes) {
  Master master;
  tw_master_options wanted{};
  wanted.struct_size = sizeof wanted;
  check(tw_master_create(&wanted, &master.handle), "starting a master");
  char address[512];
  check(tw_master_address(master.handle, address, sizeof address), "the master's address");
  // A master that has just started takes over first; a client is measured against one that is there already.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));

  std::vector<const char*> settings;
  for (const std::string& setting : options.common.settings) settings.push_back(setting.c_str());
  settings.push_back(nullptr);
  Store store;
  tw_store_options client{};
  client.struct_size = sizeof client;
  client.local_name = options.common.local.empty() ? nullptr : options.common.local.c_str();
  client.protocol = options.common.protocol.c_str();
  client.devices = options.common.devices.empty() ? nullptr : options.common.devices.c_str();
  client.master = address;
  client.segment_bytes = bytes;
  client.settings = settings.data();

  Times times;
  const double start = now();
  check(tw_store_create(&client, &store.handle), "starting a client");
  for (int64_t result = put_one(store.handle); result != 0; result = put_one(store.handle)) {
    if (now() - start > 30)
      throw BenchError(fmt::format("the first put did not succeed within 30 s: {}", tw_store_code_name(result)));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  times.first_put = now() - start;
  while (ready_bytes(store.handle) < bytes) {
    if (now() - start > 120)
      throw BenchError(fmt::format("the pool stays at {} of {} bytes", ready_bytes(store.handle), bytes));
    std::this_thread::sleep_for(kPoll);
  }
  times.ready = now() - start;
  return times;
}

void run(const InitOptions& options) {
  const uint64_t bytes = (parse_bytes(options.bytes) + kHugePage - 1) / kHugePage * kHugePage;
  const bool huge = has_huge_pages(bytes);
  double best = populate(bytes, kSteps[1], huge);
  Times times{0, 1e9};
  for (unsigned round = 0; round < options.rounds; ++round) {
    const Times measured = lend(options, bytes);
    times = {std::max(times.first_put, measured.first_put), std::min(times.ready, measured.ready)};
    best = std::max(best, populate(bytes, kSteps[round % std::size(kSteps)], huge));
  }
  const double rate = static_cast<double>(bytes) / times.ready;
  fmt::print("{:<34} {:>10.2f} GB, {} pages\n", "pool", static_cast<double>(bytes) / 1e9,
             huge ? "2 MiB huge" : "4 KiB");
  fmt::print("{:<34} {:>10.3f} s\n", "first put succeeds, at the latest", times.first_put);
  fmt::print("{:<34} {:>10.3f} s, {:.2f} GB/s\n", "all ready after", times.ready, rate / 1e9);
  fmt::print("{:<34} {:>10.2f} GB/s with {} processors\n", "the machine's best", best / 1e9, usable_processors());
  fmt::print("{:<34} {:>10.3f}\n", "share of it", rate / best);
  std::cout.flush();
  write_json(options.common, {{"bench", "init"},
                              {"bytes", bytes},
                              {"pages", huge ? "2 MiB huge" : "4 KiB"},
                              {"processors", usable_processors()},
                              {"first_put_s", times.first_put},
                              {"ready_s", times.ready},
                              {"bytes_per_s", rate},
                              {"best_bytes_per_s", best},
                              {"share", rate / best}});
}

}  // namespace

void add_init(CLI::App* bench) {
  auto* command = bench->add_subcommand(
      "init", "How soon memory that is lent to a store is of use, and how fast its pages are had");
  auto options = std::make_shared<InitOptions>();
  options->common.protocol = "tcp";
  command->add_option("--bytes", options->bytes, "memory to lend; as much must be free")->capture_default_str();
  command->add_option("--rounds", options->rounds, "how often")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--local", options->common.local, "the client's own host or host:port");
  command->add_option("--devices", options->common.devices, "interfaces to use, separated by commas");
  command->add_option("--set", options->common.settings, "a setting as name=value; may be repeated");
  command->add_option("--json", options->common.json_file, "write the figures to this file; - is standard output");
  command->callback([options] { run_bench("init", [&] { run(*options); }); });
}

}  // namespace tidewire::cli::bench
