// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench kv`: the KV transfers of a model's geometry, by prompt length.
#include "cli/bench_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <iostream>
#include <mutex>
#include <thread>

#include "cli/bench_commands.h"

namespace tidewire::cli::bench {

void move(const Rank& rank, const Pieces& pieces) {
  transfer(*rank.engine, rank.peer, TW_WRITE, pieces.local, pieces.remote, pieces.lengths);
}

Ranks::Ranks(const KvOptions& options, uint64_t tokens) : tokens_(tokens) {
  const Options& common = options.common;
  const uint64_t bytes = tokens * options.geometry.bytes_per_token();
  if (common.targets.empty()) target_ = std::make_unique<TargetProcess>(common, bytes * options.ranks);
  line_ = line_rate(common, target_.get());
  for (unsigned i = 0; i < options.ranks; ++i) {
    Rank rank;
    const std::string name = target_ ? target_->address() : common.targets[i % common.targets.size()];
    const std::string local = !common.local.empty() ? common.local : target_ ? "127.0.0.1" : route_source(name);
    rank.engine = std::make_unique<Engine>(common, local);
    rank.buffer = std::make_unique<Buffer>(*rank.engine, common.memory, bytes);
    rank.peer = rank.engine->open(name);
    uint64_t address = 0, length = 0;
    check(tw_peer_first_region(rank.engine->handle(), rank.peer, &address, &length), ("the buffer of " + name).c_str());
    // Ranks that share a target get a part of its buffer each.
    const uint64_t sharers = target_ ? options.ranks : (options.ranks + common.targets.size() - 1) / common.targets.size();
    const uint64_t part = target_ ? i : i / common.targets.size();
    if (length < bytes * sharers) {
      throw BenchError(fmt::format("{} offers a buffer of {} bytes, but {} tokens on {} ranks need {}: start it with --bytes {}", name,
                                   length, tokens, sharers, bytes * sharers, bytes * sharers));
    }
    rank.local = {rank.buffer->address(), tokens};
    rank.remote = {address + part * bytes, tokens};
    ranks_.push_back(std::move(rank));
  }
}

namespace {

constexpr size_t kFewestSamples = 7;  // of one slot in one round
constexpr size_t kWarming = 2;

struct Row {
  uint64_t page_tokens = 0, tokens = 0, bytes = 0, operations = 0, samples = 0;
  double median = 0, p99 = 0, bandwidth = 0, cpu_per_gb = 0;
};

// One request at a time in each of `concurrency` slots; a request is done when its last rank is.
class Measurement {
 public:
  Measurement(const KvOptions& options, const Ranks& ranks, uint64_t page_tokens, uint64_t tokens)
      : options_(options), ranks_(ranks) {
    const uint64_t pages = (tokens + page_tokens - 1) / page_tokens;
    const uint64_t room = ranks.tokens() / page_tokens;
    row_.page_tokens = page_tokens;
    row_.tokens = tokens;
    // Requests start at different places of the cache, so that small ones do not stay in the processor's cache.
    const uint64_t places = std::clamp<uint64_t>(room / pages, 1, row_places(pages));
    std::mt19937_64 random(tokens * 1000 + page_tokens);
    for (uint64_t place = 0; place < places; ++place) {
      requests_.emplace_back();
      for (const Rank& rank : ranks.all()) {
        requests_.back().push_back(pieces_of(options.geometry, rank.local, rank.remote, page_tokens, place * pages, pages,
                                             options.fragmented, random));
      }
    }
    for (const Pieces& pieces : requests_.front()) row_.bytes += pieces.bytes, row_.operations += pieces.lengths.size();
  }

  // Takes samples for `seconds`; may be called again for more.
  void run(double seconds) {
    for (size_t i = 0; i < kWarming; ++i) {
      for (size_t rank = 0; rank < ranks_.all().size(); ++rank) move(ranks_.all()[rank], requests_[i % requests_.size()][rank]);
    }
    const size_t before = times_.size();
    const double cpu = ranks_.cpu_seconds(), start = now();
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<std::barrier<>>> barriers;
    std::vector<std::vector<double>> took(options_.concurrency, std::vector<double>(options_.ranks));
    std::vector<char> stop(options_.concurrency, 0);
    for (unsigned slot = 0; slot < options_.concurrency; ++slot) {
      barriers.push_back(std::make_unique<std::barrier<>>(options_.ranks));
      for (unsigned rank = 0; rank < options_.ranks; ++rank) {
        threads.emplace_back([&, slot, rank, barrier = barriers.back().get()] {
          for (size_t i = 0;; ++i) {
            if (options_.gap > 0) std::this_thread::sleep_for(std::chrono::duration<double>(options_.gap));
            barrier->arrive_and_wait();
            if (stop[slot]) return;
            const double began = now();
            try {
              move(ranks_.all()[rank], requests_[(i + slot) % requests_.size()][rank]);
            } catch (const std::exception& error) {
              std::lock_guard lock(mutex_);
              if (failure_.empty()) failure_ = error.what();
            }
            took[slot][rank] = now() - began;
            barrier->arrive_and_wait();
            if (rank == 0) stop[slot] = !record(*std::max_element(took[slot].begin(), took[slot].end()), i + 1, now() - start < seconds);
          }
        });
      }
    }
    for (auto& thread : threads) thread.join();
    if (!failure_.empty()) throw BenchError(failure_);
    elapsed_ += now() - start;
    cpu_ += ranks_.cpu_seconds() - cpu;
    if (times_.size() == before) throw BenchError("no sample was taken");
  }

  Row row() {
    const double gigabytes = static_cast<double>(row_.bytes) * static_cast<double>(times_.size()) / 1e9;
    row_.samples = times_.size();
    row_.median = median(times_);
    row_.p99 = percentile(times_, 0.99);
    row_.bandwidth = options_.concurrency > 1 ? gigabytes * 1e9 / elapsed_ : static_cast<double>(row_.bytes) / row_.median;
    row_.cpu_per_gb = cpu_ / gigabytes;
    return row_;
  }

 private:
  // Few lists when they are long: they cost memory themselves.
  static uint64_t row_places(uint64_t pages) { return pages > 4096 ? 2 : 16; }

  // Takes one request's time; says whether its slot goes on.
  bool record(double took, size_t done, bool time_left) {
    std::lock_guard lock(mutex_);
    times_.push_back(took);
    return failure_.empty() && (done < kFewestSamples || time_left);
  }

  const KvOptions& options_;
  const Ranks& ranks_;
  std::vector<std::vector<Pieces>> requests_;  // by place, by rank
  Row row_;
  std::mutex mutex_;
  std::vector<double> times_;
  double elapsed_ = 0, cpu_ = 0;
  std::string failure_;
};

nlohmann::json to_json(const Row& row, const LineRate& line) {
  nlohmann::json json = {{"page_tokens", row.page_tokens}, {"tokens", row.tokens},
                         {"bytes", row.bytes},             {"operations", row.operations},
                         {"samples", row.samples},         {"median_s", row.median},
                         {"p99_s", row.p99},               {"bytes_per_s", row.bandwidth},
                         {"cpu_s_per_gb", row.cpu_per_gb}};
  if (line.bytes_per_second > 0) {
    json["utilisation"] = row.bandwidth / line.bytes_per_second;
    json["fixed_cost_s"] = row.median - static_cast<double>(row.bytes) / line.bytes_per_second;
  }
  return json;
}

void print(const Row& row, const LineRate& line) {
  const bool known = line.bytes_per_second > 0;
  fmt::print("{:>6} {:>8} {:>10.1f} {:>9} {:>11.3f} {:>11.3f} {:>8.2f} {:>8} {:>7} {:>10} {:>9.3f}\n", row.page_tokens, row.tokens,
             static_cast<double>(row.bytes) / 1e6, row.operations, row.median * 1e3, row.p99 * 1e3, row.bandwidth / 1e9,
             known ? fmt::format("{:.2f}", line.bytes_per_second / 1e9) : "-",
             known ? fmt::format("{:.1f} %", 100 * row.bandwidth / line.bytes_per_second) : "-",
             known ? fmt::format("{:.3f}", 1e3 * (row.median - static_cast<double>(row.bytes) / line.bytes_per_second)) : "-",
             row.cpu_per_gb);
  std::cout.flush();
}

void measure(const KvOptions& options) {
  const uint64_t longest = *std::max_element(options.lengths.begin(), options.lengths.end());
  const uint64_t page = *std::max_element(options.page_sizes.begin(), options.page_sizes.end());
  const Ranks ranks(options, std::max((longest + page - 1) / page * page, options.cache_tokens));
  const LineRate& line = ranks.line();
  fmt::print("{} bytes a token on each of {} rank{}, {} request{} at a time, {} % of page boundaries broken, protocol {}\n",
             options.geometry.bytes_per_token(), options.ranks, options.ranks == 1 ? "" : "s", options.concurrency,
             options.concurrency == 1 ? "" : "s", std::lround(options.fragmented * 100), options.common.protocol);
  fmt::print("line rate: {} ({})\n\n", line.bytes_per_second > 0 ? fmt::format("{:.2f} GB/s", line.bytes_per_second / 1e9) : "unknown",
             line.source);
  fmt::print("{:>6} {:>8} {:>10} {:>9} {:>11} {:>11} {:>8} {:>8} {:>7} {:>10} {:>9}\n", "page", "prompt", "KV MB", "pieces", "median ms",
             "p99 ms", "GB/s", "line", "of it", "fixed ms", "CPU s/GB");

  nlohmann::json figures = {{"bench", "kv"},
                            {"protocol", options.common.protocol},
                            {"memory", options.common.memory},
                            {"bytes_per_token", options.geometry.bytes_per_token()},
                            {"ranks", options.ranks},
                            {"concurrency", options.concurrency},
                            {"fragmented", options.fragmented},
                            {"gap_s", options.gap},
                            {"line_rate_bytes_per_s", line.bytes_per_second},
                            {"line_rate_source", line.source},
                            {"cpu_counts_target", ranks.target() != nullptr}};
  for (const uint64_t page_tokens : options.page_sizes) {
    std::vector<double> bytes, times;
    // Several rounds over all lengths: what else the machine does meets them alike, so that the line through them is straight.
    std::vector<std::unique_ptr<Measurement>> measurements;
    for (unsigned round = 0; round + 1 < options.rounds; ++round) {
      for (size_t i = 0; i < options.lengths.size(); ++i) {
        if (round == 0) measurements.push_back(std::make_unique<Measurement>(options, ranks, page_tokens, options.lengths[i]));
        measurements[i]->run(options.common.seconds / options.rounds);
      }
    }
    for (size_t i = 0; i < options.lengths.size(); ++i) {
      const uint64_t tokens = options.lengths[i];
      if (options.rounds == 1) measurements.push_back(std::make_unique<Measurement>(options, ranks, page_tokens, tokens));
      measurements[i]->run(options.common.seconds / options.rounds);
      const Row row = measurements[i]->row();
      if (options.rounds == 1) measurements[i].reset();  // long lists of pieces cost memory
      print(row, line);
      figures["rows"].push_back(to_json(row, line));
      if (tokens >= 128 && tokens <= 4096) bytes.push_back(static_cast<double>(row.bytes)), times.push_back(row.median);
    }
    if (bytes.size() >= 2) {
      const Line fit = least_squares(bytes, times);
      fmt::print("       fixed cost of a request: {:.3f} ms (least squares, 128 to 4,096 tokens), then {:.2f} GB/s\n", fit.intercept * 1e3,
                 fit.slope > 0 ? 1e-9 / fit.slope : 0.0);
      figures["intercepts"].push_back({{"page_tokens", page_tokens}, {"seconds", fit.intercept}, {"seconds_per_byte", fit.slope}});
    }
  }
  write_json(options.common, figures);
}

}  // namespace

void add_kv(CLI::App* bench) {
  auto* command = bench->add_subcommand("kv", "The KV transfers of a model, by prompt length, or of a recorded trace");
  auto options = std::make_shared<KvOptions>();
  add_options(command, &options->common);
  Geometry& geometry = options->geometry;
  command->add_option("--layers", geometry.layers, "layers of the model")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--heads", geometry.heads, "key-value heads on one rank")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--head-size", geometry.head_size, "elements of a head")->check(CLI::Range(1, 4096))->capture_default_str();
  command->add_option("--element-bytes", geometry.element_bytes, "bytes of an element")->check(CLI::Range(1, 8))->capture_default_str();
  command->add_option("--page-size", options->page_sizes, "tokens a page, several separated by commas")
      ->delimiter(',')->check(CLI::Range(1, 65536))->capture_default_str();
  command->add_option("--lengths", options->lengths, "prompt lengths in tokens, separated by commas, up to 131072")
      ->delimiter(',')->check(CLI::Range(1, 131072))->capture_default_str();
  command->add_option("--fragmented", options->fragmented, "share of page boundaries at which the next page lies elsewhere")
      ->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command->add_option("--gap", options->gap, "seconds of idleness before each request")->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_option("--rounds", options->rounds, "rounds over all lengths, each with its part of --seconds")
      ->check(CLI::Range(1, 100))->capture_default_str();
  command->add_option("--ranks", options->ranks, "ranks that send at the same time, each with an engine of its own")
      ->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--concurrency", options->concurrency, "requests at a time")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--line-rate", options->common.line_rate, "bytes a second of the path, when it can't be measured");
  command->add_option("--cache-tokens", options->cache_tokens, "tokens that each cache holds (default: the longest prompt)")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 32));
  command->add_option("--trace", options->trace, "replay this request trace (JSON lines) instead of the lengths")->check(CLI::ExistingFile);
  command->add_option("--trace-speed", options->trace_speed, "real: at the recorded times; max: as fast as possible")
      ->check(CLI::IsMember({"real", "max"}))->capture_default_str();
  command->add_option("--trace-bytes", options->trace_bytes, "new: only blocks not sent before; whole: the whole prompt each time")
      ->check(CLI::IsMember({"new", "whole"}))->capture_default_str();
  command->add_option("--trace-limit", options->trace_limit, "stop after so many requests (0: all)");
  command->callback([options] {
    run_bench("kv", [&] {
      if (options->trace.empty()) measure(*options);
      else replay_trace(*options);
    });
  });
}

}  // namespace tidewire::cli::bench
