// SPDX-License-Identifier: Apache-2.0
//
// Gets: places from the master, bytes from the owners, and whether they count.
#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "memory/copy.h"
#include "store/client/call.h"
#include "store/client/checksum.h"
#include "store/client/client.h"

namespace tidewire::store {
namespace {
constexpr uint64_t kBatchBytes = 1 << 20;  // of one batch of the engine: the next ones move while its bytes are checked
constexpr int kRounds = 4;                 // questions to the master about one key

bool fits(const Client::GetItem& item, uint64_t size) {
  const bool inside = std::all_of(item.parts.begin(), item.parts.end(), [size](const Part& part) {
    return part.length <= size && part.offset <= size - part.length;
  });
  if (!item.whole) return inside;
  const uint64_t room = std::accumulate(item.parts.begin(), item.parts.end(), uint64_t{0},
                                        [](uint64_t sum, const Part& part) { return sum + part.length; });
  return room >= size;
}

// The parts of an object of `size` bytes that are to be filled.
std::vector<Part> wanted(const Client::GetItem& item, uint64_t size) {
  if (!item.whole) return item.parts;
  std::vector<Part> parts;
  for (const Part& part : item.parts) {
    if (part.offset >= size) break;
    parts.push_back({part.address, std::min(part.length, size - part.offset), part.offset});
  }
  return parts;
}

int64_t bytes_of(const std::vector<Part>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const Part& part) { return sum + static_cast<int64_t>(part.length); });
}

// A batch whose bytes all came through this host's memory.
bool came_by_memory(const engine::Batch& batch) {
  return std::all_of(batch.parts().begin(), batch.parts().end(), [](const engine::Batch::Part& part) {
    const transport::Transport* transport = part.job->hot_transport.load();
    return transport != nullptr && transport->name() == "shm" && part.job->retried_slices == 0;
  });
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

// Reads each object from its first place that gives it; `again`: those of which the master has to be asked anew.
void Client::read_all(const std::vector<GetItem>& items, std::vector<Read>& reads, std::vector<int64_t>* results,
                      std::vector<size_t>* again) {
  struct Group {
    std::vector<size_t> reads;
    std::vector<std::vector<Usable>> memory;           // of each read
    std::vector<std::pair<size_t, size_t>> transfers;  // of each read: [first, end)
    engine::BatchPtr batch;
  };
  std::vector<size_t> open(reads.size());
  std::iota(open.begin(), open.end(), size_t{0});
  while (!open.empty()) {
    std::vector<Group> groups;
    std::vector<engine::TransferSpec> specs;
    std::vector<size_t> retry;
    uint64_t bytes = 0;
    Nanos lease_until = kNever;
    const auto submit = [&] {
      if (groups.empty() || groups.back().batch || specs.empty()) return;
      engine::SubmitOptions options;
      options.deadline = std::max<Nanos>(std::min(lease_until - monotonic_now(), timeout_), 1);
      if (Result<engine::BatchPtr> batch = engine_->submit(specs, options); batch.ok())
        groups.back().batch = std::move(batch).value();
      specs.clear();
      bytes = 0;
      lease_until = kNever;
    };
    for (const size_t r : open) {
      Read& read = reads[r];
      const GetItem& item = items[read.item];
      const std::vector<Part> parts = wanted(item, read.place.size);
      // Memory of this process needs no engine, wherever it stands in the list.
      const auto mine = std::find_if(read.place.places.begin(), read.place.places.end(),
                                     [this](const Place& place) { return own(place); });
      if (mine != read.place.places.end() && read.next_place == 0) {
        for (const Part& part : parts)
          copy_bytes(reinterpret_cast<void*>(part.address), reinterpret_cast<const void*>(mine->address + part.offset),
                     part.length);
        if (monotonic_now() < read.lease_until) {
          (*results)[read.item] = bytes_of(parts);
        } else {
          (*results)[read.item] = static_cast<int64_t>(Code::kLeaseExpired);
          again->push_back(read.item);
        }
        continue;
      }
      const Place& place = read.place.places[read.next_place];
      if (groups.empty() || groups.back().batch) groups.emplace_back();
      Group& group = groups.back();
      std::vector<Usable> memory;
      const size_t first = specs.size();
      for (const Part& part : parts) {
        memory.emplace_back(*engine_, staging_, part.address, part.length, false);
        if (part.length > 0)
          specs.push_back(transfer(transport::Opcode::kRead, memory.back(), place, part.offset, part.length));
        bytes += part.length;
      }
      group.reads.push_back(r);
      group.memory.push_back(std::move(memory));
      group.transfers.emplace_back(first, specs.size());
      lease_until = std::min(lease_until, read.lease_until);
      if (bytes >= kBatchBytes) submit();
    }
    submit();
    for (Group& group : groups) {
      const bool renewed = group.batch && wait_and_renew(*group.batch, items, reads, group.reads);
      const bool trusted = group.batch && !renewed && came_by_memory(*group.batch);
      const Nanos ended = monotonic_now();
      for (size_t g = 0; g < group.reads.size(); ++g) {
        Read& read = reads[group.reads[g]];
        const GetItem& item = items[read.item];
        bool arrived = group.batch != nullptr;
        for (size_t t = group.transfers[g].first; arrived && t < group.transfers[g].second; ++t) {
          const Result<tw_transfer_status> status = group.batch->transfer_status(t);
          arrived = status.ok() && status->state == TW_STATE_COMPLETED;
        }
        Code code = Code::kOk;
        if (ended >= read.lease_until) {
          code = Code::kLeaseExpired;
          again->push_back(read.item);
        } else if (!arrived) {
          code = Code::kTransferFailed;
          link_->call(ReportUnreadable{read.place.places[read.next_place].segment.owner}, monotonic_now() + kSecond,
                      [](const Result<Body>&) {});
          if (++read.next_place < read.place.places.size()) retry.push_back(group.reads[g]);
        } else {
          for (const Usable& memory : group.memory[g]) memory.copy_out();
          if (!trusted) code = verify(item, read);
          if (code != Code::kOk && ++read.next_place < read.place.places.size()) retry.push_back(group.reads[g]);
        }
        (*results)[read.item] =
            code == Code::kOk ? bytes_of(wanted(item, read.place.size)) : static_cast<int64_t>(code);
      }
    }
    open = std::move(retry);
  }
}

// Waits for a batch; when half of the leases has gone the master is asked again, and as long as it names the same
// versions the reads go on. True when that was needed.
bool Client::wait_and_renew(engine::Batch& batch, const std::vector<GetItem>& items, std::vector<Read>& reads,
                            const std::vector<size_t>& which) {
  bool renewed = false, renewable = true;
  while (true) {
    Nanos lease_until = kNever;
    for (const size_t r : which) lease_until = std::min(lease_until, reads[r].lease_until);
    const Nanos now = monotonic_now();
    if (batch.wait(renewable && lease_until > now ? now + (lease_until - now) / 2 : kNever,
                   engine_->settings().busy_poll))
      return renewed;
    if (lease_until - monotonic_now() > kSecond) continue;  // half of what is left, until little is
    Get request;
    for (const size_t r : which) request.keys.push_back(items[reads[r].item].key);
    const Nanos asked = monotonic_now();
    GetAnswer answer;
    renewable = call(request, lease_until, &answer) == Code::kOk && answer.gets.size() == which.size();
    for (size_t i = 0; renewable && i < which.size(); ++i)
      renewable = answer.gets[i].code == Code::kOk && answer.gets[i].version == reads[which[i]].place.version;
    if (!renewable) continue;
    for (const size_t r : which) reads[r].lease_until = asked + answer.lease - kReadMargin;
    batch.extend(asked + answer.lease - kReadMargin);
    renewed = true;
  }
}

// Only a whole object in order can be compared with its sum.
Code Client::verify(const GetItem& item, const Read& read) const {
  if (read.place.checksum == 0 || !item.whole) return Code::kOk;
  const std::vector<Part> parts = wanted(item, read.place.size);
  if (checksum(parts) == read.place.checksum) return Code::kOk;
  log::warn("store_checksum", "the bytes of {} from {} are not those that were put; another replica is tried", item.key,
            read.place.places[read.next_place].endpoint);
  return Code::kChecksumMismatch;
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
