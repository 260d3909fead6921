// SPDX-License-Identifier: Apache-2.0
//
// How many tokens of prefill does the master's eviction save on a trace of requests, and what does it cost?
//   eviction_trace TRACE [--rooms 3000,5000,10000,30000] [--json FILE]
// TRACE: lines of JSON with "timestamp" in ms and "hash_ids", one number for each 512-token block of the prompt; equal
// numbers mean an equal prefix block. Each request reads its prefix as far as it is stored without a gap, then puts
// what is missing. LRU uses a request's blocks from the last to the first, or from the first to the last, whichever
// saves more.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <list>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "nlohmann/json.hpp"
#include "store/master/eviction.h"

namespace {

using tidewire::Nanos;
using tidewire::store::Eviction;

constexpr uint64_t kTokens = 512;  // of a block

struct Request {
  Nanos at;
  std::vector<uint64_t> blocks;
};

std::vector<Request> read_trace(const char* path) {
  std::ifstream file(path);
  if (!file) {
    std::perror(path);
    std::exit(1);
  }
  std::vector<Request> trace;
  for (std::string line; std::getline(file, line);) {
    const auto request = nlohmann::json::parse(line);
    trace.push_back({static_cast<Nanos>(request["timestamp"].get<double>() * 1e6),
                     request["hash_ids"].get<std::vector<uint64_t>>()});
  }
  return trace;
}

uint64_t lru(const std::vector<Request>& trace, size_t room, bool last_first) {
  std::list<uint64_t> order;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> stored;
  uint64_t saved = 0;
  for (const Request& request : trace) {
    const auto missing = std::find_if(request.blocks.begin(), request.blocks.end(),
                                      [&](uint64_t block) { return !stored.contains(block); });
    saved += static_cast<uint64_t>(missing - request.blocks.begin());
    auto use = request.blocks;
    if (last_first) std::reverse(use.begin(), use.end());
    for (const uint64_t block : use) {
      if (const auto found = stored.find(block); found != stored.end()) {
        order.splice(order.end(), order, found->second);
        continue;
      }
      if (stored.size() == room) {
        stored.erase(order.front());
        order.pop_front();
      }
      stored[block] = order.insert(order.end(), block);
    }
  }
  return saved * kTokens;
}

// Knows the future: evicts what is used again last, and of one request the deepest.
uint64_t optimum(const std::vector<Request>& trace, size_t room) {
  std::unordered_map<uint64_t, std::vector<size_t>> uses;
  for (size_t i = trace.size(); i-- > 0;)
    for (const uint64_t block : trace[i].blocks) uses[block].push_back(i);
  using Next = std::pair<size_t, std::pair<size_t, uint64_t>>;  // request, depth, block
  std::set<Next> order;
  std::unordered_map<uint64_t, Next> stored;
  uint64_t saved = 0;
  for (const Request& request : trace) {
    size_t depth = 0;
    while (depth < request.blocks.size() && stored.contains(request.blocks[depth])) ++depth;
    saved += depth;
    for (depth = 0; depth < request.blocks.size(); ++depth) {
      const uint64_t block = request.blocks[depth];
      if (const auto found = stored.find(block); found != stored.end()) order.erase(found->second);
      uses[block].pop_back();
      const Next next{uses[block].empty() ? SIZE_MAX : uses[block].back(), {depth, block}};
      stored[block] = next;
      order.insert(next);
      if (stored.size() > room) {
        stored.erase(order.rbegin()->second.second);
        order.erase(std::prev(order.end()));
      }
    }
  }
  return saved * kTokens;
}

// `segments`: blocks are spread over so many, each with its share of the room.
uint64_t ours(const std::vector<Request>& trace, size_t room, uint32_t segments) {
  Eviction eviction;
  std::unordered_map<uint64_t, Eviction::Id> stored;
  std::vector<uint64_t> block_of(room);
  std::vector<uint32_t> segment_of(room);
  std::vector<Eviction::Id> free_ids;
  std::vector<size_t> used(segments);
  for (size_t id = room; id-- > 0;) free_ids.push_back(static_cast<Eviction::Id>(id));
  const size_t share = room / segments;
  const Eviction::Take take = [&](Eviction::Id id) {
    stored.erase(block_of[id]);
    --used[segment_of[id]];
    free_ids.push_back(id);
    return uint64_t{1};
  };
  uint64_t saved = 0;
  std::vector<Eviction::Id> chain;
  for (const Request& request : trace) {
    chain.clear();
    size_t depth = 0;
    for (; depth < request.blocks.size(); ++depth) {
      const auto found = stored.find(request.blocks[depth]);
      if (found == stored.end()) break;
      chain.push_back(found->second);
    }
    saved += depth;
    eviction.touch(chain, request.at);
    Eviction::Id parent = depth ? chain.back() : Eviction::kNone;
    for (; depth < request.blocks.size(); ++depth) {
      const uint64_t block = request.blocks[depth];
      if (const auto found = stored.find(block); found != stored.end()) {  // beyond a gap
        eviction.touch({&found->second, 1}, request.at);
        parent = found->second;
        continue;
      }
      const auto segment = static_cast<uint32_t>((block * 0x9e3779b97f4a7c15u >> 32) % segments);
      if (used[segment] == share) eviction.evict(1, segment, request.at, take);
      const Eviction::Id id = free_ids.back();
      free_ids.pop_back();
      stored[block] = id;
      block_of[id] = block;
      segment_of[id] = segment;
      ++used[segment];
      // Its parent may just have made room for it.
      eviction.insert(id, block, segment,
                      depth && stored.contains(request.blocks[depth - 1]) ? parent : Eviction::kNone, request.at);
      parent = id;
    }
  }
  return saved * kTokens;
}

struct Cost {
  double insert_ns, touch_ns, evict_ns, bytes;
};

// Processor time: other programs may be running.
std::chrono::nanoseconds processor_time() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// A million objects in chains of 32 over 16 segments, used at random.
Cost cost() {
  constexpr uint32_t kObjects = 1 << 20, kChain = 32, kSegments = 16, kRounds = 8'192;
  Eviction eviction;
  std::mt19937_64 random(1);
  Nanos now = tidewire::kSecond;
  uint64_t key = 0;
  const auto insert = [&](Eviction::Id first) {
    for (uint32_t i = 0; i < kChain; ++i)
      eviction.insert(first + i, ++key, static_cast<uint32_t>(random() % kSegments),
                      i ? first + i - 1 : Eviction::kNone, now);
  };
  for (Eviction::Id id = 0; id < kObjects; id += kChain, now += tidewire::kMillisecond) insert(id);
  std::chrono::nanoseconds inserting{}, touching{}, evicting{};
  std::vector<Eviction::Id> chain(kChain), evicted;
  const Eviction::Take take = [&](Eviction::Id id) {
    evicted.push_back(id);
    return uint64_t{1};
  };
  for (uint32_t round = 0; round < kRounds; ++round, now += 10 * tidewire::kMillisecond) {
    const auto first = static_cast<Eviction::Id>(random() % (kObjects / kChain) * kChain);
    for (uint32_t i = 0; i < kChain; ++i) chain[i] = first + i;
    const auto start = processor_time();
    eviction.touch(chain, now);
    const auto touched = processor_time();
    evicted.clear();
    eviction.evict(kChain, static_cast<uint32_t>(round % kSegments), now, take);
    const auto freed = processor_time();
    for (size_t i = 0; i < evicted.size(); ++i)
      eviction.insert(evicted[i], ++key, static_cast<uint32_t>(random() % kSegments),
                      i ? evicted[i - 1] : Eviction::kNone, now);
    const auto inserted = processor_time();
    touching += touched - start;
    evicting += freed - touched;
    inserting += inserted - freed;
  }
  const double each = 1.0 / kRounds / kChain;
  return {static_cast<double>(inserting.count()) * each, static_cast<double>(touching.count()) * each,
          static_cast<double>(evicting.count()) * each, static_cast<double>(eviction.memory_bytes()) / kObjects};
}

}  // namespace

int main(int argc, char** argv) {
  const char* json = nullptr;
  std::string rooms = "3000,5000,10000,30000";
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--json")) json = argv[i + 1];
    if (!std::strcmp(argv[i], "--rooms")) rooms = argv[i + 1];
  }
  if (argc < 2 || argc % 2 != 0) {
    std::fprintf(stderr, "eviction_trace TRACE [--rooms 3000,5000,10000,30000] [--json FILE]\n");
    return 2;
  }
  const auto trace = read_trace(argv[1]);
  nlohmann::json report = {{"requests", trace.size()}, {"rooms", nlohmann::json::array()}};
  std::printf("%10s %14s %14s %8s %14s %10s\n", "room", "LRU", "Tidewire", "ratio", "8 segments", "optimum");
  std::stringstream list(rooms);
  for (std::string text; std::getline(list, text, ',');) {
    const size_t room = std::stoul(text);
    const uint64_t first_first = lru(trace, room, false), last_first = lru(trace, room, true);
    const uint64_t reference = std::max(first_first, last_first);
    const uint64_t saved = ours(trace, room, 1), spread = ours(trace, room, 8), best = optimum(trace, room);
    const auto ratio = [&](uint64_t tokens) { return static_cast<double>(tokens) / static_cast<double>(reference); };
    std::printf("%10zu %14llu %14llu %7.3fx %13.3fx %9.2fx\n", room, static_cast<unsigned long long>(reference),
                static_cast<unsigned long long>(saved), ratio(saved), ratio(spread), ratio(best));
    report["rooms"].push_back({{"room", room},
                               {"lru_first_to_last", first_first},
                               {"lru_last_to_first", last_first},
                               {"saved", saved},
                               {"ratio", ratio(saved)},
                               {"ratio_8_segments", ratio(spread)},
                               {"ratio_optimum", ratio(best)}});
  }
  const Cost cost = ::cost();
  std::printf("\n1 M objects, for each object: insert %.0f ns, touch %.0f ns, evict %.0f ns; %.1f bytes\n",
              cost.insert_ns, cost.touch_ns, cost.evict_ns, cost.bytes);
  report["per_object"] = {
      {"insert_ns", cost.insert_ns}, {"touch_ns", cost.touch_ns}, {"evict_ns", cost.evict_ns}, {"bytes", cost.bytes}};
  if (json) std::ofstream(json) << report.dump(2) << '\n';
}
