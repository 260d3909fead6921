// SPDX-License-Identifier: Apache-2.0
//
// Gets: which objects, and their places from the master. The bytes: client_read.cpp.
#include <algorithm>
#include <numeric>

#include "store/client/call.h"
#include "store/client/client.h"

namespace tidewire::store {
namespace {
constexpr int kRounds = 4;  // questions to the master about one key

bool fits(const Client::GetItem& item, uint64_t size) {
  const bool inside = std::all_of(item.parts.begin(), item.parts.end(), [size](const Part& part) {
    return part.length <= size && part.offset <= size - part.length;
  });
  if (!item.whole) return inside;
  const uint64_t room = std::accumulate(item.parts.begin(), item.parts.end(), uint64_t{0},
                                        [](uint64_t sum, const Part& part) { return sum + part.length; });
  return room >= size;
}
}  // namespace

std::vector<int64_t> Client::get(std::vector<GetItem> items) {
  std::vector<int64_t> results(items.size(), static_cast<int64_t>(Code::kInternal));
  std::vector<size_t> which;
  for (size_t i = 0; i < items.size(); ++i) {
    if (touchable(items[i].key, items[i].parts)) {
      which.push_back(i);
    } else {
      results[i] = static_cast<int64_t>(Code::kNotSupported);
    }
  }
  for (size_t begin = 0; begin < which.size(); begin += kKeysAtOnce)
    get_some(items, std::span(which).subspan(begin, std::min(kKeysAtOnce, which.size() - begin)), &results);
  return results;
}

void Client::get_some(const std::vector<GetItem>& items, std::span<const size_t> which, std::vector<int64_t>* results) {
  std::vector<size_t> open(which.begin(), which.end());
  const Nanos until = deadline();
  for (int round = 0; round < kRounds && !open.empty(); ++round) {
    std::vector<Read> reads;
    std::vector<size_t> ask;
    {
      std::lock_guard lock(sessions_mutex_);
      for (const size_t i : open) {
        const auto session =
            get_sessions_.empty() || round > 0 ? get_sessions_.end() : get_sessions_.find(items[i].key);
        if (session == get_sessions_.end() || session->second.lease_until <= monotonic_now()) {
          ask.push_back(i);
        } else {
          reads.push_back({i, session->second.place, 0, session->second.lease_until});
        }
      }
    }
    if (!ask.empty()) {
      Get request;
      for (const size_t i : ask) request.keys.push_back(items[i].key);
      const Nanos asked = monotonic_now();
      GetAnswer answer;
      Code code = call(request, until, &answer);
      if (code == Code::kOk && answer.gets.size() != ask.size()) code = Code::kRpcFailed;
      for (size_t i = 0; i < ask.size(); ++i) {
        const Code each = code == Code::kOk ? answer.gets[i].code : code;
        (*results)[ask[i]] = static_cast<int64_t>(each);
        if (each == Code::kOk)
          reads.push_back({ask[i], std::move(answer.gets[i]), 0, asked + answer.lease - kReadMargin});
      }
    }
    std::erase_if(reads, [&](const Read& read) {
      if (fits(items[read.item], read.place.size)) return false;
      (*results)[read.item] = static_cast<int64_t>(Code::kInvalidParams);
      return true;
    });
    std::vector<size_t> again;
    read_all(items, reads, results, &again);
    open = std::move(again);
  }
}

std::vector<Client::Buffer> Client::get_buffers(const std::vector<std::string>& keys) {
  std::vector<Buffer> buffers(keys.size());
  const std::vector<int64_t> bytes = sizes(keys);
  std::vector<GetItem> items;
  std::vector<size_t> index;
  for (size_t i = 0; i < keys.size(); ++i) {
    buffers[i].result = bytes[i];
    if (bytes[i] <= 0) continue;
    buffers[i].size = static_cast<uint64_t>(bytes[i]);
    buffers[i].address = staging_.allocate(buffers[i].size);
    if (buffers[i].address == 0) {
      buffers[i].result = static_cast<int64_t>(Code::kBufferOverflow);
      continue;
    }
    items.push_back({keys[i], {{buffers[i].address, buffers[i].size, 0}}, true});
    index.push_back(i);
  }
  const std::vector<int64_t> results = get(std::move(items));
  for (size_t k = 0; k < index.size(); ++k) {
    Buffer& buffer = buffers[index[k]];
    buffer.result = results[k];
    if (results[k] >= 0) {
      buffer.size = static_cast<uint64_t>(results[k]);
    } else {
      staging_.release(std::exchange(buffer.address, 0));
    }
  }
  return buffers;
}

}  // namespace tidewire::store
