// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench bulk`: large transfers that walk a buffer, one or several outstanding. With --samples it also notes how much was moved
// in each tenth of a second, which is how the loss of a rail is seen.
#include <fmt/format.h>

#include <deque>
#include <iostream>

#include "cli/bench_commands.h"
#include "cli/bench_pair.h"

namespace tidewire::cli::bench {
namespace {

struct BulkOptions {
  Options common;
  std::vector<std::string> sizes = {"1MB", "4MiB", "16MiB", "64MiB"};
  std::vector<unsigned> outstanding = {1, 8};
  std::string walk = "256MB";
  bool read = false;
  bool timeline = false;
  double skip = 0;  // seconds left out at the start
};

constexpr uint64_t kFewestTransfers = 3;

struct Result {
  uint64_t size = 0, bytes = 0, transfers = 0, failed = 0;
  unsigned outstanding = 0;
  double start = 0;  // on the machine's monotonic clock
  double seconds = 0, median = 0, p99 = 0, longest_stall = 0, cpu_per_gb = 0;
  std::vector<std::pair<double, uint64_t>> completions;  // seconds since the start, bytes
  std::string first_error;

  double rate() const { return static_cast<double>(bytes) / seconds; }
};

Result measure(const BulkOptions& options, const Pair& pair, uint64_t size, unsigned outstanding, uint64_t walk) {
  struct Flight {
    tw_batch_t batch;
    double began;
  };
  const uint64_t places = std::max<uint64_t>(1, walk / size);
  const tw_opcode opcode = options.read ? TW_READ : TW_WRITE;
  Result result{.size = size, .outstanding = outstanding};
  std::deque<Flight> flights;
  uint64_t index = 0;
  const auto start_one = [&] {
    const uint64_t offset = index++ % places * size;
    const uint64_t local = pair.local() + offset, remote = pair.remote() + offset;
    const double began = now();
    flights.push_back({submit(pair.engine(), pair.peer(), opcode, &local, &remote, &size, 1), began});
  };
  std::vector<double> times;
  double began_measuring = 0, cpu = 0, last = 0;
  const double start = now();
  const double end = start + options.skip + std::max(options.common.seconds, 0.05);
  const auto cpu_now = [&] { return own_cpu_seconds() + (pair.target() ? pair.target()->cpu_seconds() : 0); };
  // Warm: the whole buffer once, when that is quick, otherwise what the skipped time allows.
  while (flights.size() < outstanding) start_one();
  while (!flights.empty()) {
    const Flight flight = flights.front();
    flights.pop_front();
    const tw_code code = tw_batch_wait(flight.batch, UINT64_MAX, nullptr);
    const double ended = now();
    if (code != TW_OK) {
      ++result.failed;
      char text[512] = "";
      tw_batch_error(flight.batch, text, sizeof(text));
      if (result.first_error.empty()) result.first_error = fmt::format("{} ({})", text, tw_code_name(code));
    }
    tw_batch_release(flight.batch);
    // On a slow path longer than asked, until something was measured.
    if (ended < end || result.transfers < kFewestTransfers) start_one();
    if (began_measuring == 0) {
      if (ended - start >= options.skip && index > std::min<uint64_t>(places, 4 * outstanding)) {
        began_measuring = last = ended;
        cpu = cpu_now();
      }
      continue;
    }
    result.longest_stall = std::max(result.longest_stall, ended - last);
    last = ended;
    if (code == TW_OK) result.bytes += size;
    ++result.transfers;
    times.push_back(ended - flight.began);
    if (options.timeline) result.completions.emplace_back(ended - start, code == TW_OK ? size : 0);
  }
  result.start = start;
  result.seconds = last - began_measuring;
  result.median = median(times);
  result.p99 = percentile(times, 0.99);
  result.cpu_per_gb = (cpu_now() - cpu) / (static_cast<double>(result.bytes) / 1e9);
  return result;
}

void run(const BulkOptions& options) {
  const std::vector<uint64_t> sizes = parse_bytes_list(options.sizes);
  const uint64_t walk = std::max(parse_bytes(options.walk), *std::max_element(sizes.begin(), sizes.end()));
  const Pair pair(options.common, walk);
  fmt::print("{}s, {} memory, protocol {}, {} bytes walked\n\n", options.read ? "read" : "write", options.common.memory,
             options.common.protocol, walk);
  fmt::print("{:>12} {:>12} {:>9} {:>11} {:>11} {:>10} {:>7}\n", "bytes", "outstanding", "GB/s", "median ms", "p99 ms", "CPU s/GB", "failed");
  nlohmann::json figures = {{"bench", "bulk"}, {"protocol", options.common.protocol}, {"memory", options.common.memory}, {"walk", walk}};
  for (const uint64_t size : sizes) {
    for (const unsigned outstanding : options.outstanding) {
      const Result result = measure(options, pair, size, outstanding, walk);
      fmt::print("{:>12} {:>12} {:>9.3f} {:>11.3f} {:>11.3f} {:>10.3f} {:>7}\n", size, outstanding, result.rate() / 1e9,
                 result.median * 1e3, result.p99 * 1e3, result.cpu_per_gb, result.failed);
      std::cout.flush();
      nlohmann::json row = {{"bytes", size},
                            {"outstanding", outstanding},
                            {"transfers", result.transfers},
                            {"failed", result.failed},
                            {"first_error", result.first_error},
                            {"start_monotonic_s", result.start},
                            {"seconds", result.seconds},
                            {"bytes_per_s", result.rate()},
                            {"median_s", result.median},
                            {"p99_s", result.p99},
                            {"longest_stall_s", result.longest_stall},
                            {"cpu_s_per_gb", result.cpu_per_gb}};
      if (options.timeline) row["completions"] = result.completions;
      figures["rows"].push_back(row);
    }
  }
  write_json(options.common, figures);
}

}  // namespace

void add_bulk(CLI::App* bench) {
  auto* command = bench->add_subcommand("bulk", "Large transfers that walk a buffer, one or several outstanding");
  auto options = std::make_shared<BulkOptions>();
  add_options(command, &options->common);
  command->add_option("--sizes", options->sizes, "bytes of a transfer, several separated by commas")->delimiter(',')->capture_default_str();
  command->add_option("--outstanding", options->outstanding, "transfers in flight, several separated by commas")
      ->delimiter(',')->check(CLI::Range(1, 4096))->capture_default_str();
  command->add_option("--walk", options->walk, "bytes of the buffer that is walked")->capture_default_str();
  command->add_option("--skip", options->skip, "seconds left out at the start")->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_flag("--read", options->read, "read instead of write");
  command->add_flag("--timeline", options->timeline, "write each completion's time to the JSON");
  command->callback([options] { run_bench("bulk", [&] { run(*options); }); });
}

}  // namespace tidewire::cli::bench
