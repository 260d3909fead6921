// SPDX-License-Identifier: Apache-2.0
//
// Puts: space from the master, bytes to the owners, and the end of it told.
#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "memory/copy.h"
#include "store/client/call.h"
#include "store/client/checksum.h"
#include "store/client/client.h"

namespace tidewire::store {
namespace {
constexpr uint64_t kBytesAtOnce = 1ull << 30;
constexpr uint64_t kCopyStep = 64 << 20;

uint64_t size_of(const std::vector<Part>& parts) {
  return std::accumulate(parts.begin(), parts.end(), uint64_t{0},
                         [](uint64_t sum, const Part& part) { return sum + part.length; });
}
}  // namespace

std::vector<int64_t> Client::put(std::vector<PutItem> items, const PutOptions& options, bool upsert) {
  std::vector<int64_t> results(items.size(), static_cast<int64_t>(Code::kInternal));
  std::vector<size_t> which;
  uint64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const uint64_t size = size_of(items[i].parts);
    if (items[i].key.empty() || items[i].key.size() > kMaxKeyBytes || size == 0) {
      results[i] = static_cast<int64_t>(
          items[i].key.empty() || items[i].key.size() > kMaxKeyBytes ? Code::kInvalidKey : Code::kInvalidParams);
      continue;
    }
    if (!touchable(items[i].key, items[i].parts)) {
      results[i] = static_cast<int64_t>(Code::kNotSupported);
      continue;
    }
    if (!which.empty() && (which.size() == kKeysAtOnce || bytes + size > kBytesAtOnce)) {
      put_some(items, which, options, upsert, &results);
      which.clear();
      bytes = 0;
    }
    which.push_back(i);
    bytes += size;
  }
  if (!which.empty()) put_some(items, which, options, upsert, &results);
  // Own segments that are still growing are room that the master can't promise yet.
  const Nanos until = deadline();
  while (growing_.load() > 0 && monotonic_now() < until) {
    which.clear();
    for (size_t i = 0; i < items.size(); ++i)
      if (results[i] == static_cast<int64_t>(Code::kNoSpace)) which.push_back(i);
    if (which.empty()) break;
    pause(20 * kMillisecond);
    for (const size_t& i : which) put_some(items, std::span(&i, 1), options, upsert, &results);
  }
  return results;
}

void Client::put_some(const std::vector<PutItem>& items, std::span<const size_t> which, const PutOptions& options,
                      bool upsert, std::vector<int64_t>* results) {
  PutStart start;
  start.options = {options};
  start.upsert = upsert;
  bool grouped = false;
  for (const size_t i : which) {
    start.keys.push_back(items[i].key);
    start.sizes.push_back(size_of(items[i].parts));
    grouped = grouped || !items[i].group.empty();
  }
  if (grouped)
    for (const size_t i : which) start.groups.push_back(items[i].group);
  const Nanos until = deadline();
  Nanos asked = 0;
  PutStartAnswer answer;
  Code code = start_put(start, until, &asked, &answer);
  if (code != Code::kOk) {
    for (const size_t i : which) (*results)[i] = static_cast<int64_t>(code);
    return;
  }
  std::vector<Write> writes;
  for (size_t i = 0; i < which.size(); ++i) {
    (*results)[which[i]] = static_cast<int64_t>(answer.puts[i].code);
    if (answer.puts[i].code == Code::kOk)
      writes.push_back({which[i], answer.puts[i].version, std::move(answer.puts[i].places)});
  }
  if (writes.empty()) return;
  write_all(items, writes, asked, answer.lease);
  PutEnd end;
  for (const Write& write : writes) {
    end.puts.push_back({items[write.item].key, write.token});
    end.checksums.push_back(write.checksum);
    end.written.push_back(write.written);
  }
  CodesAnswer ended;
  code = call(std::move(end), until, &ended, false);
  for (size_t i = 0; i < writes.size(); ++i) {
    const Code each = code == Code::kOk && i < ended.codes.size() ? ended.codes[i] : code;
    (*results)[writes[i].item] = static_cast<int64_t>(each);
  }
}

// A master that is taking over takes no puts yet: it is asked again until it does, or `until`.
Code Client::start_put(const PutStart& start, Nanos until, Nanos* asked, PutStartAnswer* answer) {
  while (true) {
    *asked = monotonic_now();
    const Code code = call(start, until, answer, false);
    if (code != Code::kOk) return code;
    if (answer->puts.size() != start.keys.size()) return Code::kRpcFailed;
    const bool refused = std::all_of(answer->puts.begin(), answer->puts.end(),
                                     [](const PutPlace& put) { return put.code == Code::kUnavailable; });
    if (!refused || *asked >= until) return code;
    pause(20 * kMillisecond);
  }
}

// One after the other: places in own segments by a copy, all others in one batch of the engine; the checksums
// meanwhile.
Code Client::write_all(const std::vector<PutItem>& items, std::vector<Write>& writes, Nanos asked, Nanos lease) {
  std::vector<Usable> memory;
  std::vector<engine::TransferSpec> transfers;
  std::vector<std::pair<size_t, size_t>> target;  // of each transfer: (write, place)
  Nanos stop = asked + lease - kStopBefore;
  bool renewable = true;
  for (size_t w = 0; w < writes.size(); ++w) {
    const std::vector<Part>& parts = items[writes[w].item].parts;
    const bool remote = std::any_of(writes[w].places.begin(), writes[w].places.end(),
                                    [this](const Place& place) { return !own(place); });
    const size_t first = memory.size();
    if (remote)
      for (const Part& part : parts) memory.emplace_back(*engine_, staging_, part.address, part.length, true);
    for (size_t p = 0; p < writes[w].places.size(); ++p) {
      const Place& place = writes[w].places[p];
      if (own(place)) continue;
      uint64_t offset = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].length == 0) continue;
        transfers.push_back(transfer(transport::Opcode::kWrite, memory[first + i], 0, place, offset, parts[i].length));
        target.emplace_back(w, p);
        offset += parts[i].length;
      }
    }
  }
  engine::BatchPtr batch;
  if (!transfers.empty()) {
    engine::SubmitOptions submit;
    submit.deadline = std::max<Nanos>(stop - monotonic_now(), 1);
    Result<engine::BatchPtr> submitted = engine_->submit(transfers, submit);
    if (submitted.ok()) batch = std::move(submitted).value();
  }
  // Asks for a longer lease once half of it has gone. Without one, everything stops in time.
  const auto keep = [&] {
    if (!renewable || monotonic_now() < asked + lease / 2) return;
    PutRenew renew;
    for (const Write& write : writes) renew.puts.push_back({items[write.item].key, write.token});
    const Nanos again = monotonic_now();
    PutRenewAnswer renewed;
    renewable = call(std::move(renew), stop, &renewed, false) == Code::kOk &&
                std::all_of(renewed.codes.begin(), renewed.codes.end(), [](Code code) { return code == Code::kOk; });
    if (!renewable) return;
    asked = again;
    lease = renewed.lease;
    stop = asked + lease - kStopBefore;
    if (batch) batch->extend(stop);
  };
  for (Write& write : writes) {
    write.checksum = checksum(items[write.item].parts, keep);
    for (size_t p = 0; p < write.places.size(); ++p)
      if (own(write.places[p]) && copy_in(items[write.item].parts, write.places[p].address, &stop, keep))
        write.written |= 1u << p;
  }
  if (!batch) return transfers.empty() ? Code::kOk : Code::kTransferFailed;
  while (!batch->wait(renewable ? std::min(asked + lease / 2, stop) : kNever, engine_->settings().busy_poll)) keep();
  std::vector<uint32_t> failed(writes.size(), 0), reached(writes.size(), 0);
  for (size_t i = 0; i < target.size(); ++i) {
    const Result<tw_transfer_status> status = batch->transfer_status(i);
    const auto [w, p] = target[i];
    reached[w] |= 1u << p;
    if (!status.ok() || status->state != TW_STATE_COMPLETED) failed[w] |= 1u << p;
  }
  for (size_t w = 0; w < writes.size(); ++w) writes[w].written |= reached[w] & ~failed[w];
  return Code::kOk;
}

// Into an own segment. False when the time is over: then nothing may be copied any more.
bool Client::copy_in(const std::vector<Part>& parts, uint64_t address, const Nanos* until,
                     const std::function<void()>& between) {
  for (const Part& part : parts)
    for (uint64_t at = 0; at < part.length; at += kCopyStep) {
      const uint64_t length = std::min(kCopyStep, part.length - at);
      {
        std::shared_lock copying(own_copies_);
        if (monotonic_now() >= *until) return false;
        copy_bytes(reinterpret_cast<void*>(address), reinterpret_cast<const void*>(part.address + at), length);
      }
      address += length;
      between();
    }
  return true;
}

}  // namespace tidewire::store
