// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tidewire {
namespace {

// Below this a piece is too short for the streaming loop to get going.
constexpr uint64_t kMinStreamingPiece = 1024;
constexpr uint64_t kLine = 64;
constexpr uint64_t kBlock = 4 * kLine;

struct Method {
  const char* name;
  // Copies n bytes, n a multiple of kBlock, destination aligned to kLine.
  void (*stream)(char* destination, const char* source, uint64_t n);
};

#if defined(__x86_64__)

// How far ahead the source is fetched; the best of 512, 1024, 2048 and 4096 where it was measured.
constexpr uint64_t kAhead = 2048;

inline void fetch_ahead(const char* source) {
  for (uint64_t line = 0; line < kBlock; line += kLine) _mm_prefetch(source + kAhead + line, _MM_HINT_NTA);
}

__attribute__((target("avx512f"))) void stream_avx512(char* destination, const char* source, uint64_t n) {
  for (uint64_t i = 0; i < n; i += kBlock) {
    if (i + kAhead < n) fetch_ahead(source + i);
    const __m512i a = _mm512_loadu_si512(source + i);
    const __m512i b = _mm512_loadu_si512(source + i + 64);
    const __m512i c = _mm512_loadu_si512(source + i + 128);
    const __m512i d = _mm512_loadu_si512(source + i + 192);
    auto* to = reinterpret_cast<__m512i*>(destination + i);
    _mm512_stream_si512(to, a);
    _mm512_stream_si512(to + 1, b);
    _mm512_stream_si512(to + 2, c);
    _mm512_stream_si512(to + 3, d);
  }
}

__attribute__((target("avx2"))) void stream_avx2(char* destination, const char* source, uint64_t n) {
  for (uint64_t i = 0; i < n; i += kBlock) {
    if (i + kAhead < n) fetch_ahead(source + i);
    const auto* from = reinterpret_cast<const __m256i*>(source + i);
    auto* to = reinterpret_cast<__m256i*>(destination + i);
    for (int k = 0; k < 8; k += 4) {
      const __m256i a = _mm256_loadu_si256(from + k);
      const __m256i b = _mm256_loadu_si256(from + k + 1);
      const __m256i c = _mm256_loadu_si256(from + k + 2);
      const __m256i d = _mm256_loadu_si256(from + k + 3);
      _mm256_stream_si256(to + k, a);
      _mm256_stream_si256(to + k + 1, b);
      _mm256_stream_si256(to + k + 2, c);
      _mm256_stream_si256(to + k + 3, d);
    }
  }
}

void stream_sse2(char* destination, const char* source, uint64_t n) {
  for (uint64_t i = 0; i < n; i += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source + i);
    auto* to = reinterpret_cast<__m128i*>(destination + i);
    for (int k = 0; k < 4; ++k) _mm_stream_si128(to + k, _mm_loadu_si128(from + k));
  }
}

Method choose() {
  if (__builtin_cpu_supports("avx512f")) return {"avx512", stream_avx512};
  if (__builtin_cpu_supports("avx2")) return {"avx2", stream_avx2};
  return {"sse2", stream_sse2};
}

void fence() {
  _mm_sfence();
}

#else

Method choose() {
  return {"memcpy", [](char* destination, const char* source, uint64_t n) { std::memcpy(destination, source, n); }};
}

void fence() {}

#endif

const Method& method() {
  static const Method chosen = choose();
  return chosen;
}

}  // namespace

void copy_piece(void* destination, const void* source, uint64_t n, uint64_t whole) {
  if (whole < kStreamingBytes || n < kMinStreamingPiece) {
    std::memcpy(destination, source, n);
    return;
  }
  auto* to = static_cast<char*>(destination);
  const auto* from = static_cast<const char*>(source);
  const uint64_t head = -reinterpret_cast<uint64_t>(to) % kLine;
  std::memcpy(to, from, head);
  const uint64_t body = (n - head) / kBlock * kBlock;
  method().stream(to + head, from + head, body);
  std::memcpy(to + head + body, from + head + body, n - head - body);
}

void copy_fence() {
  fence();
}

void copy_bytes(void* destination, const void* source, uint64_t n) {
  copy_piece(destination, source, n, n);
  if (n >= kStreamingBytes) fence();
}

const char* copy_method() {
  return method().name;
}

}  // namespace tidewire
