// SPDX-License-Identifier: Apache-2.0
//
// Metrics: counters, gauges and latency histograms, and their text in Prometheus' exposition format.
// A Metrics object is one registry; an engine owns one. Looking up a series takes a lock: look it up once and keep the
// reference, which stays valid as long as the registry. Changing a value is one relaxed atomic operation (a histogram:
// three) from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tidewire {

class Counter {
 public:
  void add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(int64_t amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Durations in buckets from 2 µs to 60 s, about 2.5 apart; exposed in seconds.
class Histogram {
 public:
  static constexpr std::array<Nanos, 24> kBounds = {
      2 * kMicrosecond,   5 * kMicrosecond,   10 * kMicrosecond,  25 * kMicrosecond, 50 * kMicrosecond,
      100 * kMicrosecond, 250 * kMicrosecond, 500 * kMicrosecond, 1 * kMillisecond,  2 * kMillisecond,
      5 * kMillisecond,   10 * kMillisecond,  25 * kMillisecond,  50 * kMillisecond, 100 * kMillisecond,
      250 * kMillisecond, 500 * kMillisecond, 1 * kSecond,        2 * kSecond,       5 * kSecond,
      10 * kSecond,       20 * kSecond,       30 * kSecond,       60 * kSecond};

  // Negative durations count as 0.
  void observe(Nanos duration);
  uint64_t count() const;
  Nanos sum() const { return sum_.load(std::memory_order_relaxed); }
  // Observations of at most kBounds[index], not of lower buckets; index kBounds.size() holds the rest.
  uint64_t bucket(size_t index) const { return buckets_[index].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<Nanos> sum_{0};
};

class Metrics {
 public:
  // Label names are constants of the program; values may come from outside.
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // At most so many values of the label "peer" get series of their own in each family; later ones share peer="other",
  // so that a large or changing cluster can't fill memory.
  static constexpr size_t kMaxPeers = 100;
  // The same for all other labels together: beyond it series share {overflow="true"}.
  static constexpr size_t kMaxSeries = 2000;

  // The series of this name and these labels, made at first use. `help` of the first use counts. One name has one kind:
  // a second kind gets a series that is not exposed.
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, Labels labels = {});

  // All series as text, sorted by name and labels.
  std::string expose() const;

 private:
  enum class Kind { kCounter, kGauge, kHistogram };
  struct Series {
    Counter counter;
    Gauge gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    Kind kind;
    std::string help;
    std::map<std::string, std::unique_ptr<Series>> series;  // by label text
    std::map<std::string, bool> peers;
  };

  Series& series(Kind kind, std::string_view name, std::string_view help, Labels labels);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
  std::vector<std::unique_ptr<Series>> unexposed_;
};

}  // namespace tidewire
