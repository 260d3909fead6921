// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench small`: the latency of one small write, and how many scattered pieces a second one call moves.
#include <fmt/format.h>

#include <iostream>

#include "cli/bench_commands.h"
#include "cli/bench_pair.h"

namespace tidewire::cli::bench {
namespace {

struct SmallOptions {
  Options common;
  std::vector<std::string> sizes = {"8", "64", "256", "1KiB", "4KiB", "16KiB", "64KiB"};
  std::vector<uint64_t> pieces = {1, 10, 100, 1000, 10000, 50000};
  std::string piece = "256";
  bool read = false;
};

constexpr size_t kWarming = 200;
constexpr size_t kMostSamples = 200'000;
constexpr uint64_t kStride = 2;  // pieces lie two piece lengths apart, so that none can be merged with its neighbour

void latency(const SmallOptions& options, const Pair& pair, nlohmann::json* figures) {
  fmt::print("{:>10} {:>10} {:>11} {:>11} {:>11}\n", "bytes", "samples", "median us", "p99 us", "least us");
  for (const uint64_t size : parse_bytes_list(options.sizes)) {
    const uint64_t local = pair.local(), remote = pair.remote();
    const tw_opcode opcode = options.read ? TW_READ : TW_WRITE;
    const auto once = [&] { finish(submit(pair.engine(), pair.peer(), opcode, &local, &remote, &size, 1)); };
    for (size_t i = 0; i < kWarming; ++i) once();
    std::vector<double> times;
    const double end = now() + options.common.seconds;
    for (double began = now(); began < end && times.size() < kMostSamples;) {
      once();
      const double ended = now();
      times.push_back(ended - began);
      began = ended;
    }
    const double least = percentile(times, 0);
    fmt::print("{:>10} {:>10} {:>11.2f} {:>11.2f} {:>11.2f}\n", size, times.size(), median(times) * 1e6, percentile(times, 0.99) * 1e6,
               least * 1e6);
    std::cout.flush();
    (*figures)["latency"].push_back(
        {{"bytes", size}, {"samples", times.size()}, {"median_s", median(times)}, {"p99_s", percentile(times, 0.99)}, {"least_s", least}});
  }
}

void lists(const SmallOptions& options, const Pair& pair, uint64_t piece, nlohmann::json* figures) {
  fmt::print("\n{:>10} {:>10} {:>11} {:>11} {:>14} {:>9}\n", "pieces", "samples", "median ms", "p99 ms", "pieces/s", "GB/s");
  for (const uint64_t count : options.pieces) {
    std::vector<uint64_t> local(count), remote(count), lengths(count, piece);
    for (uint64_t i = 0; i < count; ++i) {
      local[i] = pair.local() + i * kStride * piece;
      remote[i] = pair.remote() + i * kStride * piece;
    }
    const auto once = [&] { transfer(pair.engine(), pair.peer(), options.read ? TW_READ : TW_WRITE, local, remote, lengths); };
    for (int i = 0; i < 3; ++i) once();
    std::vector<double> times;
    const double end = now() + options.common.seconds;
    while (times.size() < 5 || (now() < end && times.size() < kMostSamples)) {
      const double began = now();
      once();
      times.push_back(now() - began);
    }
    const double middle = median(times), rate = static_cast<double>(count) / middle;
    fmt::print("{:>10} {:>10} {:>11.3f} {:>11.3f} {:>14.0f} {:>9.3f}\n", count, times.size(), middle * 1e3, percentile(times, 0.99) * 1e3,
               rate, rate * static_cast<double>(piece) / 1e9);
    std::cout.flush();
    (*figures)["lists"].push_back({{"pieces", count},
                                   {"piece_bytes", piece},
                                   {"samples", times.size()},
                                   {"median_s", middle},
                                   {"p99_s", percentile(times, 0.99)},
                                   {"pieces_per_s", rate}});
  }
}

void run(const SmallOptions& options) {
  const uint64_t piece = parse_bytes(options.piece);
  uint64_t bytes = 1 << 20;
  for (const uint64_t size : parse_bytes_list(options.sizes)) bytes = std::max(bytes, size);
  for (const uint64_t count : options.pieces) bytes = std::max(bytes, count * kStride * piece);
  const Pair pair(options.common, bytes);
  nlohmann::json figures = {{"bench", "small"}, {"protocol", options.common.protocol}, {"memory", options.common.memory}};
  fmt::print("{}s, {} memory, protocol {}\n\n", options.read ? "read" : "write", options.common.memory, options.common.protocol);
  latency(options, pair, &figures);
  lists(options, pair, piece, &figures);
  write_json(options.common, figures);
}

}  // namespace

void add_small(CLI::App* bench) {
  auto* command = bench->add_subcommand("small", "Latency of small transfers, and scattered lists in one call");
  auto options = std::make_shared<SmallOptions>();
  add_options(command, &options->common);
  command->add_option("--sizes", options->sizes, "bytes of a single transfer, several separated by commas")
      ->delimiter(',')->capture_default_str();
  command->add_option("--pieces", options->pieces, "pieces of a list, several separated by commas")
      ->delimiter(',')->check(CLI::Range(1, 10'000'000))->capture_default_str();
  command->add_option("--piece", options->piece, "bytes of a piece")->capture_default_str();
  command->add_flag("--read", options->read, "read instead of write");
  command->callback([options] { run_bench("small", [&] { run(*options); }); });
}

}  // namespace tidewire::cli::bench
