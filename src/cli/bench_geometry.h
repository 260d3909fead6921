// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of a KV cache lie, and which pieces a request's transfer consists of. A cache is one buffer: for each layer first all
// keys, then all values, each an array of pages. Neighbouring pages that are neighbours on both sides become one piece, as the
// serving frameworks do before they call a transfer engine.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tidewire::cli::bench {

struct Geometry {  // the default: Qwen3-235B-A22B in bf16, one of eight ranks
  uint64_t layers = 94;
  uint64_t heads = 1;
  uint64_t head_size = 128;
  uint64_t element_bytes = 2;

  uint64_t token_bytes_in_layer() const { return heads * head_size * element_bytes; }  // of keys, or of values
  uint64_t planes() const { return 2 * layers; }                                      // keys and values of each layer
  uint64_t bytes_per_token() const { return planes() * token_bytes_in_layer(); }
};

// The pieces of one request: same index, same piece.
struct Pieces {
  std::vector<uint64_t> local, remote, lengths;
  uint64_t bytes = 0;
};

// A cache of `tokens` at `base`.
struct Cache {
  uint64_t base = 0;
  uint64_t tokens = 0;
};

// The pieces of a request of `pages` pages that start at page `first` of both caches. Each page boundary is a break with the probability
// `fragmented`; the runs between breaks lie in another order at either side. first + pages must fit in both caches.
Pieces pieces_of(const Geometry& geometry, const Cache& local, const Cache& remote, uint64_t page_tokens, uint64_t first,
                 uint64_t pages, double fragmented, std::mt19937_64& random);

// Intercept of the least-squares line through (x, y), and its slope.
struct Line {
  double intercept = 0;
  double slope = 0;
};
Line least_squares(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace tidewire::cli::bench
