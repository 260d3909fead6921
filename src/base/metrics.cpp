// SPDX-License-Identifier: Apache-2.0
#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace tidewire {
namespace {

std::string escaped(std::string_view value) {
  std::string result;
  for (const char letter : value.substr(0, 256)) {
    if (letter == '\\' || letter == '"') {
      result += '\\';
      result += letter;
    } else if (letter == '\n') {
      result += "\\n";
    } else {
      // The format is UTF-8; foreign bytes outside ASCII may not be.
      result += static_cast<unsigned char>(letter) < 0x20 || static_cast<unsigned char>(letter) >= 0x7f ? '?' : letter;
    }
  }
  return result;
}

std::string label_text(const Metrics::Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value));
  return text;
}

std::string braces(const std::string& labels) {
  return labels.empty() ? "" : "{" + labels + "}";
}

double seconds(Nanos duration) {
  return static_cast<double>(duration) / 1e9;
}

}  // namespace

void Histogram::observe(Nanos duration) {
  duration = std::max<Nanos>(duration, 0);
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), duration);
  buckets_[static_cast<size_t>(bound - kBounds.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(duration, std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (const auto& bucket : buckets_) total += bucket.load(std::memory_order_relaxed);
  return total;
}

Metrics::Series& Metrics::series(Kind kind, std::string_view name, std::string_view help, Labels labels) {
  const std::lock_guard lock(mutex_);
  auto family = families_.find(name);
  if (family == families_.end()) {
    family = families_.emplace(std::string(name), Family{kind, std::string(help), {}, {}}).first;
  }
  if (family->second.kind != kind) {
    unexposed_.push_back(std::make_unique<Series>());
    if (kind == Kind::kHistogram) unexposed_.back()->histogram = std::make_unique<Histogram>();
    return *unexposed_.back();
  }
  for (auto& [label, value] : labels) {
    if (label != "peer") continue;
    auto& peers = family->second.peers;
    if (!peers.contains(value)) {
      if (peers.size() >= kMaxPeers) {
        value = "other";
      } else {
        peers.emplace(value, true);
      }
    }
  }
  auto& all = family->second.series;
  std::string key = label_text(labels);
  if (!all.contains(key) && all.size() >= kMaxSeries) key = "overflow=\"true\"";
  std::unique_ptr<Series>& found = all[key];
  if (!found) {
    found = std::make_unique<Series>();
    if (kind == Kind::kHistogram) found->histogram = std::make_unique<Histogram>();
  }
  return *found;
}

Counter& Metrics::counter(std::string_view name, std::string_view help, Labels labels) {
  return series(Kind::kCounter, name, help, std::move(labels)).counter;
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, Labels labels) {
  return series(Kind::kGauge, name, help, std::move(labels)).gauge;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, Labels labels) {
  return *series(Kind::kHistogram, name, help, std::move(labels)).histogram;
}

std::string Metrics::expose() const {
  const std::lock_guard lock(mutex_);
  fmt::memory_buffer out;
  const auto write = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
  };
  constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  for (const auto& [name, family] : families_) {
    write("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, kKinds[static_cast<int>(family.kind)]);
    for (const auto& [labels, series] : family.series) {
      if (family.kind == Kind::kCounter) {
        write("{}{} {}\n", name, braces(labels), series->counter.value());
      } else if (family.kind == Kind::kGauge) {
        write("{}{} {}\n", name, braces(labels), series->gauge.value());
      } else {
        const Histogram& histogram = *series->histogram;
        const std::string prefix = labels.empty() ? "" : labels + ",";
        // Buckets are cumulative here. The count is their sum, so that the two agree although values move meanwhile.
        uint64_t total = 0;
        for (size_t index = 0; index < Histogram::kBounds.size(); ++index) {
          total += histogram.bucket(index);
          write("{}_bucket{{{}le=\"{}\"}} {}\n", name, prefix, seconds(Histogram::kBounds[index]), total);
        }
        total += histogram.bucket(Histogram::kBounds.size());
        write("{}_bucket{{{}le=\"+Inf\"}} {}\n", name, prefix, total);
        write("{}_sum{} {}\n{}_count{} {}\n", name, braces(labels), seconds(histogram.sum()), name, braces(labels),
              total);
      }
    }
  }
  return fmt::to_string(out);
}

}  // namespace tidewire
