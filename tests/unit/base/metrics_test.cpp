// SPDX-License-Identifier: Apache-2.0
#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace tidewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t lines_with(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Metrics, CountersAndGaugesAreExposedWithHelpAndKind) {
  Metrics metrics;
  metrics.counter("tidewire_bytes_total", "Bytes moved.", {{"rail", "eth0"}, {"direction", "write"}}).add(5);
  metrics.gauge("tidewire_in_flight", "Transfers in flight.").set(-2);
  EXPECT_EQ(metrics.expose(),
            "# HELP tidewire_bytes_total Bytes moved.\n# TYPE tidewire_bytes_total counter\n"
            "tidewire_bytes_total{rail=\"eth0\",direction=\"write\"} 5\n"
            "# HELP tidewire_in_flight Transfers in flight.\n# TYPE tidewire_in_flight gauge\ntidewire_in_flight -2\n");
}

TEST(Metrics, TheSameNameAndLabelsAreOneSeries) {
  Metrics metrics;
  Counter& first = metrics.counter("c", "h", {{"rail", "a"}});
  EXPECT_EQ(&first, &metrics.counter("c", "h", {{"rail", "a"}}));
  EXPECT_NE(&first, &metrics.counter("c", "h", {{"rail", "b"}}));
}

TEST(Metrics, HistogramBucketsAreCumulativeAndEndWithAll) {
  Metrics metrics;
  Histogram& histogram = metrics.histogram("latency_seconds", "h", {{"rail", "a"}});
  histogram.observe(-5);                // counts as 0
  histogram.observe(2 * kMicrosecond);  // on the bound: inside
  histogram.observe(2 * kMicrosecond + 1);
  histogram.observe(100 * kSecond);
  const std::string text = metrics.expose();
  EXPECT_THAT(text, HasSubstr("latency_seconds_bucket{rail=\"a\",le=\"2e-06\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_bucket{rail=\"a\",le=\"5e-06\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_bucket{rail=\"a\",le=\"60\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_bucket{rail=\"a\",le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_count{rail=\"a\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("latency_seconds_sum{rail=\"a\"} 100.000004001\n"));
}

TEST(Metrics, BytesBeyondFourGigabytesAreExact) {
  Metrics metrics;
  metrics.counter("bytes", "h").add((uint64_t{1} << 53) + 1);
  EXPECT_THAT(metrics.expose(), HasSubstr("bytes 9007199254740993\n"));
}

TEST(Metrics, PeersBeyondTheCapShareOneSeries) {
  Metrics metrics;
  for (size_t peer = 0; peer < Metrics::kMaxPeers + 50; ++peer) {
    metrics.counter("c", "h", {{"peer", "host" + std::to_string(peer)}}).add();
  }
  const std::string text = metrics.expose();
  EXPECT_EQ(lines_with(text, "c{peer="), Metrics::kMaxPeers + 1);
  EXPECT_THAT(text, HasSubstr("c{peer=\"other\"} 50\n"));
  metrics.counter("c", "h", {{"peer", "host3"}}).add();
  EXPECT_THAT(metrics.expose(), HasSubstr("c{peer=\"host3\"} 2\n"));
}

TEST(Metrics, SeriesBeyondTheCapShareOne) {
  Metrics metrics;
  for (size_t value = 0; value < Metrics::kMaxSeries + 7; ++value)
    metrics.counter("c", "h", {{"x", std::to_string(value)}}).add();
  EXPECT_THAT(metrics.expose(), HasSubstr("c{overflow=\"true\"} 7\n"));
}

TEST(Metrics, ForeignLabelValuesCanNotBreakTheFormat) {
  Metrics metrics;
  metrics.counter("c", "h", {{"peer", "a\"} 1\nevil 2\\\xff"}}).add();
  EXPECT_THAT(metrics.expose(), HasSubstr("c{peer=\"a\\\"} 1\\nevil 2\\\\?\"} 1\n"));
}

TEST(Metrics, ASecondKindOfOneNameIsUsableAndNotExposed) {
  Metrics metrics;
  metrics.counter("c", "h").add(3);
  metrics.histogram("c", "h").observe(kSecond);
  metrics.gauge("c", "h").set(9);
  EXPECT_EQ(metrics.expose(), "# HELP c h\n# TYPE c counter\nc 3\n");
}

TEST(Metrics, ThreadsLoseNoCountWhileTextIsMade) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&metrics, thread] {
      Counter& shared = metrics.counter("shared", "h");
      Histogram& histogram = metrics.histogram("latency", "h");
      for (int round = 0; round < 5000; ++round) {
        shared.add();
        histogram.observe(round);
        if (round % 1000 == 0) metrics.counter("own", "h", {{"thread", std::to_string(thread)}}).add();
      }
    });
  }
  for (int round = 0; round < 20; ++round) EXPECT_THAT(metrics.expose(), Not(HasSubstr("{}")));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(metrics.counter("shared", "h").value(), 20000u);
  EXPECT_EQ(metrics.histogram("latency", "h").count(), 20000u);
}

}  // namespace
}  // namespace tidewire
