// SPDX-License-Identifier: Apache-2.0
//
// New versions: from the space that their writers get to the moment when readers see them.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "store/master/master.h"

namespace tidewire::store {
namespace {
const PutOptions& options_of(const PutStart& start, size_t index) {
  static const PutOptions defaults;
  if (start.options.empty()) return defaults;
  return start.options[start.options.size() == 1 ? 0 : index];
}

bool well_formed(const PutStart& start) {
  const size_t keys = start.keys.size();
  return start.sizes.size() == keys && (start.options.size() <= 1 || start.options.size() == keys) &&
         (start.groups.empty() || start.groups.size() == keys);
}
}  // namespace

void Master::on_put_start(ConnectionId connection, uint64_t request, const ClientPtr& client, PutStart start,
                          Nanos now) {
  PutWaiting waiting{connection, request, std::move(start), {}, {}, now + options_.put_wait};
  waiting.answer.lease = options_.write_lease;
  waiting.answer.puts.resize(waiting.start.keys.size());
  counters_.puts_started += waiting.start.keys.size();
  if (!well_formed(waiting.start)) {
    for (PutPlace& place : waiting.answer.puts) place.code = Code::kInvalidParams;
    return answer_put_start(waiting, now);
  }
  // A batch continues what its writer asked for last: frameworks look first which blocks of a prompt are there.
  Chain chain{0, client->chain_end};
  for (size_t i = 0; i < waiting.start.keys.size(); ++i) {
    PutPlace& place = waiting.answer.puts[i];
    place.code = start_put(*client, waiting.start, i, &chain, &place, now);
    if (place.code == Code::kNoSpace) waiting.open.push_back(i);
  }
  if (waiting.open.empty() || make_room(waiting.start, waiting.open, now) == 0) return answer_put_start(waiting, now);
  puts_waiting_.push_back(std::move(waiting));
}

Code Master::start_put(const Client& writer, const PutStart& start, size_t index, Chain* chain, PutPlace* place,
                       Nanos now) {
  const std::string& key = start.keys[index];
  const PutOptions& options = options_of(start, index);
  if (key.empty() || key.size() > kMaxKeyBytes) return Code::kInvalidKey;
  if (start.sizes[index] == 0 || options.replicas == 0 || options.replicas > kMaxReplicas) return Code::kInvalidParams;
  // Not before everybody who may hold the key is known: an older version that turns up later would not be told from the
  // only one.
  if (taking_over_) return Code::kUnavailable;
  if (!start.upsert) {
    const ObjectTable::Id id = table_.find(key);
    if (id != ObjectTable::kNone && in_touch(table_[id])) {
      *chain = {0, id};
      return Code::kExists;
    }
  }
  std::vector<Replica> places = allocate(writer, start.sizes[index], options, now);
  if (places.empty()) return Code::kNoSpace;
  const Version token = next_version();
  Attempt& attempt = attempts_[token];
  attempt.key = key;
  if (!start.groups.empty()) attempt.group = start.groups[index];
  attempt.writer = writer.id;
  attempt.writer_endpoint = writer.name;
  attempt.size = start.sizes[index];
  attempt.flags = (options.hard_pin ? kFlagHardPin : 0) | (options.soft_pin == PinAction::kEnable ? kFlagSoftPin : 0) |
                  static_cast<uint32_t>(options.data_type) << kDataTypeShift;
  attempt.soft_pin = options.soft_pin;
  attempt.soft_pin_ttl = options.soft_pin_ttl;
  attempt.upsert = start.upsert;
  attempt.places = std::move(places);
  attempt.before = chain->before;
  attempt.parent = chain->parent;
  *chain = {token, ObjectTable::kNone};
  attempt.lease_until = lease_end(now, options_.write_lease);
  attempts_due_.push({attempt.lease_until, token});
  place->version = token;
  for (const Replica& replica : attempt.places) {
    const Segment& segment = *segments_[replica.segment];
    place->places.push_back(
        {{segment.owner->id, segment.info.ordinal}, segment.owner->name, segment.info.base + replica.offset});
  }
  return Code::kOk;
}

// Space has been freed or time has passed: those who wait for room, in their order.
void Master::retry_waiting_puts(Nanos now) {
  if (puts_waiting_.empty()) return;
  space_freed_ = false;
  std::deque<PutWaiting> all = std::exchange(puts_waiting_, {});
  for (PutWaiting& waiting : all) {
    const ClientPtr client = client_of(waiting.connection);
    if (!client) continue;
    std::erase_if(waiting.open, [&](size_t i) {
      PutPlace& place = waiting.answer.puts[i];
      Chain chain;
      place.code = start_put(*client, waiting.start, i, &chain, &place, now);
      return place.code != Code::kNoSpace;
    });
    const bool hopeless = !waiting.open.empty() && make_room(waiting.start, waiting.open, now) == 0;
    if (waiting.open.empty() || now >= waiting.until || hopeless) {
      answer_put_start(waiting, now);
    } else {
      puts_waiting_.push_back(std::move(waiting));
    }
  }
}

// The lease counts from the client's request: what the first keys of it waited is theirs as well.
void Master::answer_put_start(PutWaiting& waiting, Nanos now) {
  counters_.puts_no_space += waiting.open.size();
  const Nanos renewed = lease_end(now, options_.write_lease);
  for (const PutPlace& place : waiting.answer.puts) {
    const auto attempt = attempts_.find(place.version);
    if (place.code != Code::kOk || attempt == attempts_.end()) continue;
    attempt->second.lease_until = renewed;
    attempts_due_.push({renewed, place.version});
  }
  answer(waiting.connection, waiting.request, std::move(waiting.answer));
}

Code Master::check_attempt(const KeyVersion& name, const Client& client, Attempt** out) {
  const auto found = attempts_.find(name.version);
  if (found == attempts_.end() || found->second.key != name.key) return Code::kInvalidWrite;
  if (found->second.writer != client.id) return Code::kIllegalClient;
  if (found->second.step != Attempt::Step::kWriting) return Code::kInvalidWrite;
  *out = &found->second;
  return Code::kOk;
}

void Master::on_put_end(ConnectionId connection, uint64_t request, const ClientPtr& client, const PutEnd& end,
                        Nanos now) {
  const size_t count = end.puts.size();
  auto waiting =
      std::make_shared<Waiting>(Waiting{connection, request, std::vector<Code>(count, Code::kInternal), count + 1});
  const bool bad = end.checksums.size() != count || end.written.size() != count;
  for (size_t i = 0; i < count; ++i) {
    Attempt* attempt = nullptr;
    const Code code = bad ? Code::kInvalidParams : check_attempt(end.puts[i], *client, &attempt);
    if (code != Code::kOk) {
      finish(waiting, i, code);
      continue;
    }
    attempt->waiting = waiting;
    attempt->index = i;
    attempt->checksum = end.checksums[i];
    std::vector<Replica> written, missed;
    for (size_t p = 0; p < attempt->places.size(); ++p)
      ((end.written[i] >> p & 1) != 0 ? written : missed).push_back(attempt->places[p]);
    attempt->places = std::move(written);
    const Version token = end.puts[i].version;
    if (!missed.empty()) {
      // What failed may still be on its way: an attempt of its own that is given up.
      Attempt rest;
      rest.key = attempt->key;
      rest.writer = attempt->writer;
      rest.writer_endpoint = attempt->writer_endpoint;
      rest.size = attempt->size;
      rest.places = std::move(missed);
      const Version rest_token = next_version();
      attempts_[rest_token] = std::move(rest);
      abandon(rest_token, now);
      attempt = &attempts_[token];
    }
    if (attempt->places.empty()) {
      finish_attempt(token, Code::kTransferFailed, now);
      continue;
    }
    // One version of a key is recorded at a time, so that a later one knows what it meets.
    std::deque<Version>& line = recording_[attempt->key];
    line.push_back(token);
    attempt->step = Attempt::Step::kQueued;
    if (line.size() == 1) record(token, now);
  }
  for (const auto& [id, owner] : clients_) flush_records(owner);
  finish(waiting, SIZE_MAX, Code::kOk);
}

void Master::record(Version token, Nanos now) {
  Attempt& attempt = attempts_[token];
  attempt.step = Attempt::Step::kRecording;
  const ObjectTable::Id present = table_.find(attempt.key);
  if (!attempt.upsert && present != ObjectTable::kNone && in_touch(table_[present]))
    return finish_attempt(token, Code::kExists, now);
  if (attempt.soft_pin == PinAction::kPreserve && present != ObjectTable::kNone)
    attempt.flags |= table_[present].flags & kFlagSoftPin;
  attempt.version = next_version();
  attempt.answers_open = attempt.places.size();
  const std::vector<Replica> places = attempt.places;
  for (const Replica& replica : places) {
    const Segment& segment = *segments_[replica.segment];
    if (!segment.mounted || !in_contact(*segment.owner)) {
      recorded(token, replica, false, now);
      continue;
    }
    segment.owner->record.entries.push_back({attempt.key, attempt.version, segment.info.ordinal, replica.offset,
                                             attempt.size, attempt.checksum, attempt.flags, attempt.group});
    segment.owner->recorded.push_back({token, replica});
    if (segment.owner->record.entries.size() >= kMaxCollected) flush_records(segment.owner);
  }
}

void Master::flush_records(const ClientPtr& client) {
  if (client->record.entries.empty()) return;
  Pending pending;
  client->record.term = term();
  pending.recorded = std::exchange(client->recorded, {});
  pending.body = std::exchange(client->record, {});
  pending.request = ++last_request_;
  io_.send(client->connection, {pending.request, false, pending.body});
  client->pending.push_back(std::move(pending));
}

// One owner has answered, or is not waited for any more.
void Master::recorded(Version token, const Replica& replica, bool ok, Nanos now) {
  const auto found = attempts_.find(token);
  if (found == attempts_.end() || found->second.step != Attempt::Step::kRecording) return;
  Attempt& attempt = found->second;
  if (ok) {
    attempt.recorded.push_back(replica);
  } else {
    // It may have it all the same, and has to forget it then.
    also_wait(attempt.waiting, drop_replicas(attempt.key, attempt.version, attempt.size, {&replica, 1}, 0, now));
  }
  if (--attempt.answers_open > 0) return;
  if (attempt.recorded.empty()) return finish_attempt(token, Code::kWriteFailed, now);
  commit(token, now);
}

// All owners have it: the switch to the new version, which nobody sees in part.
void Master::commit(Version token, Nanos now) {
  Attempt& attempt = attempts_[token];
  ObjectTable::Id id = table_.find(attempt.key);
  wait_for_key(attempt.waiting, attempt.key);
  // Who is told of the new version never sees the one before again, whatever happens to us.
  if (id != ObjectTable::kNone) also_wait(attempt.waiting, drop_object(id, now));
  id = table_.insert(attempt.key);
  Object& object = table_[id];
  object.version = attempt.version;
  object.size = attempt.size;
  object.checksum = attempt.checksum;
  object.flags = attempt.flags;
  object.set_replicas(attempt.recorded);
  for (const Replica& replica : attempt.recorded) ++segments_[replica.segment]->objects;
  ObjectTable::Id parent =
      attempt.before != 0 && last_committed_token_ == attempt.before ? last_committed_ : attempt.parent;
  if (parent != Eviction::kNone && !table_.used(parent)) parent = Eviction::kNone;
  eviction_.insert(id, ObjectTable::hash(attempt.key), attempt.recorded.front().segment, parent, now);
  pin(id, attempt.soft_pin_ttl > 0 ? std::min(attempt.soft_pin_ttl, options_.max_soft_pin_ttl) : options_.soft_pin_ttl,
      now);
  last_committed_token_ = token;
  last_committed_ = id;
  ++counters_.puts_committed;
  attempt.places.clear();
  finish_attempt(token, Code::kOk, now);
}

// Whatever places it still has are free again. Only for attempts of whose writers nothing is on its way.
void Master::finish_attempt(Version token, Code code, Nanos now) {
  const auto found = attempts_.find(token);
  Attempt attempt = std::move(found->second);
  attempts_.erase(found);
  const bool in_line = attempt.step == Attempt::Step::kRecording;
  if (attempt.version == 0)  // otherwise owners that may have recorded it drop it first
    for (const Replica& replica : attempt.places) give_back(replica, attempt.size, 0, now);
  finish(attempt.waiting, attempt.index, code);
  if (in_line) next_of_key(attempt.key, now);
}

void Master::next_of_key(const std::string& key, Nanos now) {
  const auto line = recording_.find(key);
  line->second.pop_front();
  if (line->second.empty()) {
    recording_.erase(line);
    return;
  }
  record(line->second.front(), now);
  for (const auto& [id, owner] : clients_) flush_records(owner);
}

void Master::on_put_revoke(ConnectionId connection, uint64_t request, const ClientPtr& client, const PutRevoke& revoke,
                           Nanos now) {
  CodesAnswer reply;
  for (const KeyVersion& name : revoke.puts) {
    Attempt* attempt = nullptr;
    reply.codes.push_back(check_attempt(name, *client, &attempt));
    if (attempt != nullptr && revoke.quiet) finish_attempt(name.version, Code::kOk, now);
  }
  answer(connection, request, std::move(reply));
}

void Master::on_put_renew(ConnectionId connection, uint64_t request, const ClientPtr& client, const PutRenew& renew,
                          Nanos now) {
  PutRenewAnswer reply;
  reply.lease = options_.write_lease;
  for (const KeyVersion& name : renew.puts) {
    Attempt* attempt = nullptr;
    reply.codes.push_back(check_attempt(name, *client, &attempt));
    if (attempt == nullptr) continue;
    const bool granted = std::all_of(attempt->places.begin(), attempt->places.end(), [&](const Replica& replica) {
      return allocatable(*segments_[replica.segment], now);
    });
    if (!granted) {
      reply.codes.back() = Code::kLeaseExpired;  // an owner does not vouch for us any more: another master may be about
                                                 // to give out space there
      continue;
    }
    attempt->lease_until = lease_end(now, options_.write_lease);
    attempts_due_.push({attempt->lease_until, name.version});
  }
  answer(connection, request, std::move(reply));
}

void Master::expire_attempts(Nanos now) {
  while (!attempts_due_.empty() && attempts_due_.top().first <= now) {
    const Version token = attempts_due_.top().second;
    attempts_due_.pop();
    const auto attempt = attempts_.find(token);
    if (attempt != attempts_.end() && attempt->second.step == Attempt::Step::kWriting &&
        attempt->second.lease_until <= now)
      abandon(token, now);
  }
}

// A writer that went silent. Its lease is over, but what it sent may still arrive: each owner confirms that nothing
// will.
void Master::abandon(Version token, Nanos now) {
  Attempt& attempt = attempts_[token];
  ++counters_.puts_abandoned;
  log::info("store_put_abandoned", "key={} writer={} bytes={}", attempt.key, attempt.writer_endpoint, attempt.size);
  attempt.step = Attempt::Step::kQuieting;
  std::vector<ClientPtr> owners;
  for (const Replica& replica : attempt.places) {
    const Segment& segment = *segments_[replica.segment];
    if (segment.mounted && std::find(owners.begin(), owners.end(), segment.owner) == owners.end())
      owners.push_back(segment.owner);
  }
  attempt.answers_open = owners.size() + 1;
  for (const ClientPtr& owner : owners) {
    Pending pending;
    pending.body = Quiet{term(), attempt.writer, attempt.writer_endpoint};
    pending.quieted.push_back(token);
    pending.request = ++last_request_;
    if (owner->connection != 0) io_.send(owner->connection, {pending.request, false, pending.body});
    owner->pending.push_back(std::move(pending));
  }
  quieted(token, now);
}

void Master::quieted(Version token, Nanos now) {
  const auto found = attempts_.find(token);
  if (found == attempts_.end() || found->second.step != Attempt::Step::kQuieting || --found->second.answers_open > 0)
    return;
  finish_attempt(token, Code::kOk, now);
}

}  // namespace tidewire::store
