// SPDX-License-Identifier: Apache-2.0
//
// How fast can this machine copy plain memory? Several threads (default 2) walk buffers far larger than the caches with memcpy
// and with non-temporal stores; the better one is what a same-host transfer is held against.
//   copy_reference [--threads 2] [--bytes 268435456] [--seconds 1]
#include <immintrin.h>

#include <atomic>
#include <thread>

#include "reference.h"

namespace {

using Copy = void (*)(uint8_t*, const uint8_t*, uint64_t);

void plain(uint8_t* to, const uint8_t* from, uint64_t bytes) { std::memcpy(to, from, bytes); }

void non_temporal_sse(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_load_si128(source), b = _mm_load_si128(source + 1);
    const __m128i c = _mm_load_si128(source + 2), d = _mm_load_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
}

__attribute__((target("avx"))) void non_temporal_avx(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 128) {
    const auto* source = reinterpret_cast<const __m256i*>(from + i);
    auto* target = reinterpret_cast<__m256i*>(to + i);
    const __m256i a = _mm256_load_si256(source), b = _mm256_load_si256(source + 1);
    const __m256i c = _mm256_load_si256(source + 2), d = _mm256_load_si256(source + 3);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
    _mm256_stream_si256(target + 2, c);
    _mm256_stream_si256(target + 3, d);
  }
  _mm_sfence();
}

// Bytes a second of `threads` threads, each walking its share of the buffers again and again.
double measure(Copy copy, uint8_t* to, const uint8_t* from, uint64_t bytes, unsigned threads, double seconds) {
  const uint64_t share = bytes / threads / 4096 * 4096;
  constexpr uint64_t kStep = 2 * bench::kMiB;
  std::atomic<uint64_t> moved{0};
  std::atomic<unsigned> ready{0};
  std::vector<std::thread> workers;
  std::atomic<double> end{0};
  for (unsigned i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      bench::pin(i);
      const uint64_t base = i * share;
      copy(to + base, from + base, share);  // warm
      ++ready;
      while (end.load() == 0) sched_yield();
      uint64_t done = 0, offset = 0;
      while (bench::now() < end.load()) {
        const uint64_t length = std::min(kStep, share - offset);
        copy(to + base + offset, from + base + offset, length);
        done += length;
        offset = offset + length >= share ? 0 : offset + length;
      }
      moved += done;
    });
  }
  while (ready.load() < threads) sched_yield();
  end.store(bench::now() + seconds);
  for (auto& worker : workers) worker.join();
  return static_cast<double>(moved.load()) / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const auto threads = static_cast<unsigned>(std::max(1.0, bench::number(argc, argv, "--threads", 2)));
  const auto bytes = static_cast<uint64_t>(bench::number(argc, argv, "--bytes", 256.0 * bench::kMiB));
  const double seconds = bench::number(argc, argv, "--seconds", 1);
  // Shared memory, as a pool that peers can map is: its pages are as large as the machine makes those of a memfd.
  uint8_t* from = bench::memory(bytes, true);
  uint8_t* to = bench::memory(bytes, true);
  const double with_memcpy = measure(plain, to, from, bytes, threads, seconds);
  const Copy streaming = __builtin_cpu_supports("avx") ? non_temporal_avx : non_temporal_sse;
  const double with_stores = measure(streaming, to, from, bytes, threads, seconds);
  std::printf("{\"threads\": %u, \"buffer_bytes\": %llu, \"memcpy_bytes_per_s\": %.0f, \"non_temporal_bytes_per_s\": %.0f, "
              "\"bytes_per_s\": %.0f}\n",
              threads, static_cast<unsigned long long>(bytes), with_memcpy, with_stores, std::max(with_memcpy, with_stores));
  return 0;
}
