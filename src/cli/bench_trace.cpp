// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench kv --trace`: replays a recorded hour of requests. A trace is JSON lines with `timestamp` (ms), `input_length` (tokens)
// and `hash_ids` (one for each block of 512 tokens; equal ids are equal prefix blocks). With --trace-bytes new only blocks that no earlier
// request sent are moved, as with a prefix cache that never forgets; with whole every prompt is moved entirely.
#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "cli/bench_kv.h"

namespace tidewire::cli::bench {
namespace {

constexpr uint64_t kBlockTokens = 512;
constexpr uint64_t kDefaultCacheTokens = 32768;

struct TraceRequest {
  double time = 0;  // seconds since the first one
  uint64_t tokens = 0;
};

std::vector<TraceRequest> read_trace(const KvOptions& options) {
  std::ifstream file(options.trace);
  std::vector<TraceRequest> requests;
  std::unordered_set<uint64_t> seen;
  std::string line;
  double first = -1;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry.contains("timestamp") || !entry["timestamp"].is_number() || !entry.contains("input_length") ||
        !entry["input_length"].is_number_unsigned()) {
      throw BenchError(fmt::format("{}:{}: no request; a line needs timestamp (ms), input_length (tokens) and hash_ids", options.trace, number));
    }
    const uint64_t length = entry["input_length"];
    uint64_t tokens = length;
    if (options.trace_bytes == "new") {
      tokens = 0;
      uint64_t start = 0;
      for (const nlohmann::json& id : entry.value("hash_ids", nlohmann::json::array())) {
        if (!id.is_number_unsigned()) throw BenchError(fmt::format("{}:{}: hash_ids must be whole numbers", options.trace, number));
        const uint64_t block = std::min(kBlockTokens, length - std::min(length, start));
        if (seen.insert(id.get<uint64_t>()).second) tokens += block;
        start += kBlockTokens;
      }
    }
    const double milliseconds = entry["timestamp"];
    if (first < 0) first = milliseconds;
    requests.push_back({(milliseconds - first) / 1e3, tokens});
    if (options.trace_limit && requests.size() >= options.trace_limit) break;
  }
  if (requests.empty()) throw BenchError(fmt::format("{}: no requests in it", options.trace));
  return requests;
}

}  // namespace

void replay_trace(const KvOptions& options) {
  const std::vector<TraceRequest> requests = read_trace(options);
  const uint64_t page = options.page_sizes.front();
  const Ranks ranks(options, (options.cache_tokens ? options.cache_tokens : kDefaultCacheTokens) / page * page);
  const uint64_t room = ranks.tokens() / page;
  const bool real = options.trace_speed == "real";

  std::atomic<size_t> next{0};
  std::atomic<uint64_t> bytes{0}, operations{0}, moved{0};
  std::mutex mutex;
  std::vector<double> latencies, services;
  std::string failure;
  const double cpu = ranks.cpu_seconds(), start = now();
  const auto work = [&](unsigned worker) {
    std::mt19937_64 random(worker);
    for (size_t index; (index = next++) < requests.size();) {
      const TraceRequest& request = requests[index];
      const double due = real ? start + request.time : now();
      if (real && due > now()) std::this_thread::sleep_for(std::chrono::duration<double>(due - now()));
      if (request.tokens == 0) continue;  // everything was there already
      const double began = now();
      try {
        // A prompt longer than the cache goes in parts, one after the other.
        for (uint64_t left = (request.tokens + page - 1) / page; left > 0;) {
          const uint64_t pages = std::min(left, room);
          const uint64_t first = room == pages ? 0 : random() % (room - pages + 1);
          std::vector<std::thread> others;
          const auto part = [&](const Rank& rank, uint64_t seed) {
            std::mt19937_64 local(seed);
            const Pieces pieces = pieces_of(options.geometry, rank.local, rank.remote, page, first, pages, options.fragmented, local);
            try {
              move(rank, pieces);
            } catch (const std::exception& error) {
              std::lock_guard lock(mutex);
              if (failure.empty()) failure = error.what();
            }
            bytes += pieces.bytes;
            operations += pieces.lengths.size();
          };
          for (size_t i = 1; i < ranks.all().size(); ++i) others.emplace_back(part, std::cref(ranks.all()[i]), random());
          part(ranks.all()[0], random());
          for (auto& other : others) other.join();
          left -= pages;
        }
      } catch (const std::exception& error) {
        std::lock_guard lock(mutex);
        if (failure.empty()) failure = error.what();
      }
      std::lock_guard lock(mutex);
      if (!failure.empty()) return;
      ++moved;
      latencies.push_back(now() - due);
      services.push_back(now() - began);
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 1; i < options.concurrency; ++i) workers.emplace_back(work, i);
  work(0);
  for (auto& worker : workers) worker.join();
  if (!failure.empty()) throw BenchError(failure);

  const double elapsed = now() - start, gigabytes = static_cast<double>(bytes.load()) / 1e9;
  const double cpu_used = ranks.cpu_seconds() - cpu;
  const LineRate& line = ranks.line();
  const double bandwidth = gigabytes * 1e9 / elapsed;
  fmt::print("{}: {} requests, {} with bytes to move ({}), {} at a time, {}\n", options.trace, requests.size(), moved.load(),
             options.trace_bytes == "new" ? "new blocks only" : "whole prompts", options.concurrency,
             real ? "at the recorded times" : "as fast as possible");
  fmt::print("moved {:.2f} GB in {} pieces, {:.2f} s: {:.2f} GB/s", gigabytes, operations.load(), elapsed, bandwidth / 1e9);
  if (line.bytes_per_second > 0) {
    fmt::print(", {:.1f} % of {:.2f} GB/s ({})", 100 * bandwidth / line.bytes_per_second, line.bytes_per_second / 1e9, line.source);
  }
  fmt::print("\na request: median {:.3f} ms, p99 {:.3f} ms", median(services) * 1e3, percentile(services, 0.99) * 1e3);
  if (real) fmt::print("; from its recorded time: median {:.3f} ms, p99 {:.3f} ms", median(latencies) * 1e3, percentile(latencies, 0.99) * 1e3);
  fmt::print("\nCPU {:.3f} s/GB\n", gigabytes > 0 ? cpu_used / gigabytes : 0.0);
  write_json(options.common, {{"bench", "kv-trace"},
                              {"requests", requests.size()},
                              {"requests_moved", moved.load()},
                              {"trace_bytes", options.trace_bytes},
                              {"trace_speed", options.trace_speed},
                              {"page_tokens", page},
                              {"bytes", bytes.load()},
                              {"operations", operations.load()},
                              {"elapsed_s", elapsed},
                              {"bytes_per_s", bandwidth},
                              {"line_rate_bytes_per_s", line.bytes_per_second},
                              {"line_rate_source", line.source},
                              {"request_median_s", median(services)},
                              {"request_p99_s", percentile(services, 0.99)},
                              {"since_recorded_median_s", real ? median(latencies) : 0},
                              {"since_recorded_p99_s", real ? percentile(latencies, 0.99) : 0},
                              {"cpu_s_per_gb", gigabytes > 0 ? cpu_used / gigabytes : 0}});
}

}  // namespace tidewire::cli::bench
