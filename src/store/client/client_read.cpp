// SPDX-License-Identifier: Apache-2.0
//
// Reads: the bytes of objects from their owners, and whether they count.
#include <algorithm>
#include <numeric>
#include <optional>

#include "base/log.h"
#include "memory/copy.h"
#include "store/client/call.h"
#include "store/client/checksum.h"
#include "store/client/client.h"

namespace tidewire::store {
namespace {

// Of one batch of the engine, and of a stretch of a larger object: the next ones move while its bytes are summed.
constexpr uint64_t kBatchBytes = 1 << 20;

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

// Whether all bytes of a batch came through this host's memory.
bool came_by_memory(const engine::Batch& batch) {
  return std::all_of(batch.parts().begin(), batch.parts().end(), [](const engine::Batch::Part& part) {
    const transport::Transport* transport = part.job->hot_transport.load();
    return transport != nullptr && transport->name() == "shm" && part.job->retried_slices == 0;
  });
}

}  // namespace

// One object on its way from one of its places.
struct Client::Reading {
  size_t read = 0;
  std::vector<Part> parts;
  std::vector<Usable> memory;  // of each part
  bool arrived = true;
  bool by_memory = true;
  bool renewed = false;  // its lease, under way
  bool to_sum = false;   // only a whole object in order can be compared with its sum
  uint64_t summed = 0;   // bytes from the front that `sum` has seen
  std::optional<Checksum> sum;

  uint64_t bytes() const { return static_cast<uint64_t>(bytes_of(parts)); }
};

struct Client::Stretch {
  size_t reading;
  uint64_t address;  // where the engine puts it
  uint64_t length;
  uint64_t offset;    // in what is read of its object
  uint64_t transfer;  // its number in the batch
  bool last;          // of its object
};

// What one batch of the engine moves: stretches of objects.
struct Client::ReadBatch {
  std::vector<Stretch> stretches;
  engine::BatchPtr batch;  // null when it was refused
};

// Reads each object from its first place that gives it; `again`: those of which the master has to be asked anew.
void Client::read_all(const std::vector<GetItem>& items, std::vector<Read>& reads, std::vector<int64_t>* results,
                      std::vector<size_t>* again) {
  std::vector<size_t> open(reads.size());
  std::iota(open.begin(), open.end(), size_t{0});
  while (!open.empty()) {
    std::vector<Reading> readings;
    readings.reserve(open.size());
    for (const size_t r : open)
      if (!read_own(items[reads[r].item], reads[r], results, again)) readings.push_back({.read = r});
    std::vector<ReadBatch> batches = submit_reads(items, reads, readings);
    std::vector<size_t> retry;
    for (size_t b = 0; b < batches.size(); ++b) {
      const ReadBatch& batch = batches[b];
      if (batch.batch) wait_and_renew(std::span<const ReadBatch>(batches).subspan(b), items, reads, readings);
      const bool by_memory = batch.batch && came_by_memory(*batch.batch);
      for (const Stretch& stretch : batch.stretches) {
        Reading& reading = readings[stretch.reading];
        take(batch, stretch, by_memory, &reading);
        if (stretch.last) finish(items, reads, reading, results, again, &retry);
      }
    }
    open = std::move(retry);
  }
}

// Memory of this process needs no engine, wherever it stands in the list. False when the object is not there.
bool Client::read_own(const GetItem& item, const Read& read, std::vector<int64_t>* results,
                      std::vector<size_t>* again) {
  const auto mine = std::find_if(read.place.places.begin(), read.place.places.end(),
                                 [this](const Place& place) { return own(place); });
  if (mine == read.place.places.end() || read.next_place != 0) return false;
  const std::vector<Part> parts = wanted(item, read.place.size);
  for (const Part& part : parts)
    copy_bytes(reinterpret_cast<void*>(part.address), reinterpret_cast<const void*>(mine->address + part.offset),
               part.length);
  if (monotonic_now() < read.lease_until) {
    (*results)[read.item] = bytes_of(parts);
  } else {
    (*results)[read.item] = static_cast<int64_t>(Code::kLeaseExpired);
    again->push_back(read.item);
  }
  return true;
}

// Hands all stretches of all readings to the engine, in order.
std::vector<Client::ReadBatch> Client::submit_reads(const std::vector<GetItem>& items, const std::vector<Read>& reads,
                                                    std::vector<Reading>& readings) {
  std::vector<ReadBatch> batches;
  std::vector<engine::TransferSpec> specs;
  uint64_t bytes = 0;
  Nanos lease_until = kNever;
  const auto submit = [&] {
    if (specs.empty()) return;
    engine::SubmitOptions options;
    options.deadline = std::max<Nanos>(std::min(lease_until - monotonic_now(), timeout_), 1);
    if (Result<engine::BatchPtr> batch = engine_->submit(specs, options); batch.ok())
      batches.back().batch = std::move(batch).value();
    specs.clear();
    bytes = 0;
    lease_until = kNever;
  };
  for (size_t i = 0; i < readings.size(); ++i) {
    Reading& reading = readings[i];
    const Read& read = reads[reading.read];
    const Place& place = read.place.places[read.next_place];
    reading.parts = wanted(items[read.item], read.place.size);
    reading.to_sum = items[read.item].whole && read.place.checksum != 0;
    uint64_t offset = 0;
    const auto add = [&](uint64_t address, uint64_t length) {
      if (specs.empty()) batches.emplace_back();
      batches.back().stretches.push_back({i, address, length, offset, specs.size(), false});
      lease_until = std::min(lease_until, read.lease_until);
    };
    for (const Part& part : reading.parts) {
      const Usable& memory = reading.memory.emplace_back(*engine_, staging_, part.address, part.length, false);
      for (uint64_t at = 0; at < part.length;) {
        // What is left of a part that is little more than a stretch goes with it.
        const uint64_t left = part.length - at;
        const uint64_t length = left < 2 * kBatchBytes ? left : kBatchBytes;
        add(memory.address() + at, length);
        specs.push_back(transfer(transport::Opcode::kRead, memory, at, place, part.offset + at, length));
        at += length;
        offset += length;
        bytes += length;
        if (bytes >= kBatchBytes) submit();
      }
    }
    if (offset == 0) add(0, 0);  // an object, or a range of one, without bytes
    batches.back().stretches.back().last = true;
  }
  submit();
  return batches;
}

// A stretch has arrived, or has not; what came over a wire is summed while the next ones move.
void Client::take(const ReadBatch& batch, const Stretch& stretch, bool by_memory, Reading* reading) {
  if (stretch.length == 0) return;
  if (batch.batch) {
    const Result<tw_transfer_status> status = batch.batch->transfer_status(stretch.transfer);
    reading->arrived = reading->arrived && status.ok() && status->state == TW_STATE_COMPLETED;
  } else {
    reading->arrived = false;
  }
  reading->by_memory = reading->by_memory && by_memory;
  const bool only = stretch.offset == 0 && stretch.last;  // finish() sums it as fast
  if (!reading->arrived || by_memory || !reading->to_sum || only || stretch.offset != reading->summed) return;
  if (!reading->sum) reading->sum.emplace();
  reading->sum->add(stretch.address, stretch.length);
  reading->summed += stretch.length;
}

// All of an object has been waited for.
void Client::finish(const std::vector<GetItem>& items, std::vector<Read>& reads, Reading& reading,
                    std::vector<int64_t>* results, std::vector<size_t>* again, std::vector<size_t>* retry) {
  Read& read = reads[reading.read];
  const GetItem& item = items[read.item];
  int64_t& result = (*results)[read.item];
  if (monotonic_now() >= read.lease_until) {
    result = static_cast<int64_t>(Code::kLeaseExpired);
    again->push_back(read.item);
    return;
  }
  if (!reading.arrived) {
    result = static_cast<int64_t>(Code::kTransferFailed);
    link_->call(ReportUnreadable{read.place.places[read.next_place].segment.owner}, monotonic_now() + kSecond,
                [](const Result<Body>&) {});
  } else {
    for (const Usable& memory : reading.memory) memory.copy_out();
    if ((reading.by_memory && !reading.renewed) || !reading.to_sum || sum_of(reading) == read.place.checksum) {
      result = static_cast<int64_t>(reading.bytes());
      return;
    }
    result = static_cast<int64_t>(Code::kChecksumMismatch);
    log::warn("store_checksum", "the bytes of {} from {} are not those that were put; another replica is tried",
              item.key, read.place.places[read.next_place].endpoint);
  }
  if (++read.next_place < read.place.places.size()) retry->push_back(reading.read);
}

uint64_t Client::sum_of(const Reading& reading) {
  return reading.sum && reading.summed == reading.bytes() ? reading.sum->value() : checksum(reading.parts);
}

// Waits for the first of the batches; when half of the leases of its objects has gone the master is asked again, for
// all that are still on their way. As long as it names the same versions the reads go on.
void Client::wait_and_renew(std::span<const ReadBatch> batches, const std::vector<GetItem>& items,
                            std::vector<Read>& reads, std::vector<Reading>& readings) {
  const ReadBatch& first = batches.front();
  bool renewable = true;
  while (true) {
    Nanos lease_until = kNever;
    for (const Stretch& stretch : first.stretches)
      lease_until = std::min(lease_until, reads[readings[stretch.reading].read].lease_until);
    const Nanos now = monotonic_now();
    if (first.batch->wait(renewable && lease_until > now ? now + (lease_until - now) / 2 : kNever,
                          engine_->settings().busy_poll))
      return;
    if (lease_until - monotonic_now() > kSecond) continue;  // half of what is left, until little is
    renew(batches, lease_until, items, reads, readings);
    renewable = std::all_of(first.stretches.begin(), first.stretches.end(), [&](const Stretch& stretch) {
      return reads[readings[stretch.reading].read].lease_until > lease_until;
    });
  }
}

// Asks the master once, until `until`, about all objects of the batches.
void Client::renew(std::span<const ReadBatch> batches, Nanos until, const std::vector<GetItem>& items,
                   std::vector<Read>& reads, std::vector<Reading>& readings) {
  std::vector<size_t> which;  // readings
  for (const ReadBatch& batch : batches)
    for (const Stretch& stretch : batch.stretches)
      if (which.empty() || which.back() != stretch.reading) which.push_back(stretch.reading);
  Get request;
  for (const size_t w : which) request.keys.push_back(items[reads[readings[w].read].item].key);
  const Nanos asked = monotonic_now();
  GetAnswer answer;
  if (call(request, until, &answer) != Code::kOk || answer.gets.size() != which.size()) return;
  const Nanos lease_until = asked + answer.lease - kReadMargin;
  for (size_t i = 0; i < which.size(); ++i) {
    Read& read = reads[readings[which[i]].read];
    if (answer.gets[i].code != Code::kOk || answer.gets[i].version != read.place.version) continue;
    read.lease_until = lease_until;
    readings[which[i]].renewed = true;
  }
  for (const ReadBatch& batch : batches) {
    const bool all = std::all_of(batch.stretches.begin(), batch.stretches.end(), [&](const Stretch& stretch) {
      return reads[readings[stretch.reading].read].lease_until == lease_until;
    });
    if (all && batch.batch) batch.batch->extend(lease_until);
  }
}

}  // namespace tidewire::store
