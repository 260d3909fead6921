// SPDX-License-Identifier: Apache-2.0
//
// What the bench subcommands share: their common options, engines and buffers that clean up after themselves, times and tables.
// Inside the bench commands a failure is thrown as BenchError; run_bench() turns it into one line on stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tidewire/tidewire.h"

namespace tidewire::cli::bench {

struct BenchError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws BenchError with the calling thread's tw_last_error() unless code is TW_OK.
void check(tw_code code, const char* what);

struct Options {
  std::vector<std::string> targets;  // empty: a target process of our own
  std::string protocol = "auto";     // "tcp" turns the same-host path off, so that TCP is what is measured
  std::string local;                 // the engine's own name; empty = 127.0.0.1, or the address that routes to the target
  std::string metadata;
  std::string devices;
  std::string target_devices;        // of our own target process; empty = as devices
  std::vector<std::string> settings;
  std::string memory = "pool";       // pool: tw_allocate; foreign: memory that the program got elsewhere; cuda: of device 0
  std::string json_file;
  double seconds = 0.5;              // how long each figure is measured
  double line_rate = 0;              // bytes a second; 0 = measure
};
void add_options(CLI::App* command, Options* options);

// Runs a command's body; prints what was thrown and throws CLI::RuntimeError(1).
void run_bench(const char* name, const std::function<void()>& body);

// "64", "4KiB", "1MB", "2GiB" … to bytes; throws BenchError.
uint64_t parse_bytes(const std::string& text);
std::vector<uint64_t> parse_bytes_list(const std::vector<std::string>& texts);

// Monotonic seconds.
double now();

// An engine with the options above. Destroyed with the object.
class Engine {
 public:
  Engine(const Options& options, const std::string& local);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  tw_engine_t handle() const { return handle_; }
  std::string address() const;
  tw_peer_t open(const std::string& name) const;

 private:
  tw_engine_t handle_ = 0;
};

// Registered, populated memory of one engine, by Options::memory. Freed with the object, which must go before its engine.
class Buffer {
 public:
  Buffer(const Engine& engine, const std::string& kind, uint64_t length);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(address_); }
  uint64_t length() const { return length_; }

 private:
  const Engine& engine_;
  void* address_ = nullptr;
  uint64_t length_ = 0;
  bool pool_ = false;
  bool cuda_ = false;
};

// One batch from three arrays, submitted and waited for. Throws on any failure, with the first failed transfer's text.
void transfer(const Engine& engine, tw_peer_t peer, tw_opcode opcode, const std::vector<uint64_t>& local,
              const std::vector<uint64_t>& remote, const std::vector<uint64_t>& lengths, double deadline_seconds = 0);
tw_batch_t submit(const Engine& engine, tw_peer_t peer, tw_opcode opcode, const uint64_t* local, const uint64_t* remote,
                  const uint64_t* lengths, size_t count, double deadline_seconds = 0);
// Waits for the batch, releases it, throws unless it COMPLETED.
void finish(tw_batch_t batch);

double percentile(std::vector<double> values, double share);
double median(const std::vector<double>& values);

// The address that this host would use to reach "host:port"; "127.0.0.1" when that can't be found out.
std::string route_source(const std::string& target);

// Writes the figures where --json says ("-" = standard output).
void write_json(const Options& options, const nlohmann::json& figures);

}  // namespace tidewire::cli::bench
