// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_geometry.h"

#include <algorithm>
#include <numeric>

namespace tidewire::cli::bench {
namespace {

struct Run {  // neighbouring pages of the prompt
  uint64_t pages = 0;
  uint64_t local = 0, remote = 0;  // its first page in either cache
};

std::vector<Run> runs_of(uint64_t first, uint64_t pages, double fragmented, std::mt19937_64& random) {
  std::vector<Run> runs(1, {1, first, first});
  std::bernoulli_distribution breaks(std::clamp(fragmented, 0.0, 1.0));
  for (uint64_t page = 1; page < pages; ++page) {
    if (fragmented > 0 && breaks(random)) runs.push_back({0, 0, 0});
    ++runs.back().pages;
  }
  if (runs.size() == 1) return runs;
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (uint64_t Run::*side : {&Run::local, &Run::remote}) {
    std::shuffle(order.begin(), order.end(), random);
    uint64_t page = first;
    for (const size_t index : order) {
      runs[index].*side = page;
      page += runs[index].pages;
    }
  }
  return runs;
}

}  // namespace

Pieces pieces_of(const Geometry& geometry, const Cache& local, const Cache& remote, uint64_t page_tokens, uint64_t first,
                 uint64_t pages, double fragmented, std::mt19937_64& random) {
  // The block table is one for all layers, so the runs are too.
  const std::vector<Run> runs = runs_of(first, pages, fragmented, random);
  const uint64_t page_bytes = page_tokens * geometry.token_bytes_in_layer();
  const uint64_t local_plane = local.tokens * geometry.token_bytes_in_layer();
  const uint64_t remote_plane = remote.tokens * geometry.token_bytes_in_layer();
  Pieces pieces;
  for (auto* list : {&pieces.local, &pieces.remote, &pieces.lengths}) list->reserve(runs.size() * geometry.planes());
  for (uint64_t plane = 0; plane < geometry.planes(); ++plane) {
    for (const Run& run : runs) {
      pieces.local.push_back(local.base + plane * local_plane + run.local * page_bytes);
      pieces.remote.push_back(remote.base + plane * remote_plane + run.remote * page_bytes);
      pieces.lengths.push_back(run.pages * page_bytes);
    }
  }
  pieces.bytes = pages * page_bytes * geometry.planes();
  return pieces;
}

Line least_squares(const std::vector<double>& x, const std::vector<double>& y) {
  const auto count = static_cast<double>(x.size());
  if (x.size() < 2) return {};
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / count;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / count;
  double covariance = 0, variance = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    covariance += (x[i] - mean_x) * (y[i] - mean_y);
    variance += (x[i] - mean_x) * (x[i] - mean_x);
  }
  if (variance == 0) return {};
  const double slope = covariance / variance;
  return {mean_y - slope * mean_x, slope};
}

}  // namespace tidewire::cli::bench
