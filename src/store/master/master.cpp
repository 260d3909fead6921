// SPDX-License-Identifier: Apache-2.0
//
// The start, the way of messages to those who handle them, what is due in time, and what the pages show.
#include "store/master/master.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tidewire::store {
namespace {
constexpr int kSilentHeartbeats = 3;       // a live client that misses so many is suspect
constexpr Nanos kStep = 5 * kMillisecond;  // between two parts of a long sweep
}  // namespace

Result<std::unique_ptr<Master>> Master::start(MasterOptions options, const InstanceId& id, JournalState state,
                                              Journal& journal, MasterIo& io, Nanos now) {
  std::unique_ptr<Master> master(new Master(options, id, std::move(state), journal, io, now));
  const uint64_t term = master->journal_state_.term + 1;
  TW_RETURN_IF_ERROR(master->write_journal({{JournalRecord::Kind::kTerm, term, {}, {}}}));
  return master;
}

Master::Master(MasterOptions options, const InstanceId& id, JournalState state, Journal& journal, MasterIo& io,
               Nanos now)
    : options_(options),
      id_(id),
      journal_state_(std::move(state)),
      journal_(journal),
      io_(io),
      random_(options.seed),
      owners_may_be_stale_(journal_state_.fresh),
      takeover_until_(now + (journal_state_.fresh ? options.takeover : options.client_ttl)) {
  // A term may be used twice, by masters that don't know of each other's journal: their versions are not the same all
  // the same.
  sequence_ = (uint64_t{id[0]} << 24 | uint64_t{id[1]} << 16 | uint64_t{id[2]} << 8 | id[3]) << 7;
}

Status Master::write_journal(const std::vector<JournalRecord>& records) {
  TW_RETURN_IF_ERROR(journal_.append(records));
  for (const JournalRecord& record : records) journal_state_.apply(record);
  return Status();
}

Master::ClientPtr Master::client_of(ConnectionId connection) const {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : found->second;
}

uint64_t Master::ask(const Client& client, Body body) {
  const uint64_t request = ++last_request_;
  io_.send(client.connection, {request, false, std::move(body)});
  return request;
}

void Master::on_message(ConnectionId connection, Message message, Nanos now) {
  const uint64_t request = message.request;
  if (auto* attach = std::get_if<Attach>(&message.body)) {
    on_attach(connection, request, *attach, now);
    flush_drops();
    return;
  }
  const ClientPtr client = client_of(connection);
  if (!client) return answer(connection, request, CodeAnswer{Code::kClientNotFound});
  client->heard = now;
  if (client->state == State::kSuspect) {
    client->state = State::kLive;
    client->live_since = now;
    ask_grant(client, now);
  }
  if (message.answer) {
    on_answer(client, request, std::move(message.body), now);
  } else if (taking_over_ &&
             (std::holds_alternative<Remove>(message.body) || std::holds_alternative<RemoveMatching>(message.body))) {
    // Not before everybody who may hold the key is known.
    after_takeover_.emplace_back(connection, std::move(message));
  } else if (auto* get = std::get_if<Get>(&message.body)) {
    on_get(connection, request, *client, *get, now);
  } else if (auto* exists = std::get_if<Exists>(&message.body)) {
    on_exists(connection, request, *client, *exists, now);
  } else if (auto* start = std::get_if<PutStart>(&message.body)) {
    on_put_start(connection, request, client, std::move(*start), now);
  } else if (auto* end = std::get_if<PutEnd>(&message.body)) {
    on_put_end(connection, request, client, *end, now);
  } else if (auto* revoke = std::get_if<PutRevoke>(&message.body)) {
    on_put_revoke(connection, request, client, *revoke, now);
  } else if (auto* renew = std::get_if<PutRenew>(&message.body)) {
    on_put_renew(connection, request, client, *renew, now);
  } else if (auto* remove = std::get_if<Remove>(&message.body)) {
    on_remove(connection, request, *remove, now);
  } else if (auto* matching = std::get_if<RemoveMatching>(&message.body)) {
    on_remove_matching(connection, request, *matching, now);
  } else if (auto* chunk = std::get_if<InventoryChunk>(&message.body)) {
    on_inventory(client, request, std::move(*chunk), now);
  } else if (auto* mount = std::get_if<Mount>(&message.body)) {
    on_mount(client, mount->segment);
    // Answered once objects can be put there, so that whoever mounts knows it.
    mounts_waiting_.push_back({connection, request, mount->segment.ordinal, now + options_.put_wait});
  } else if (auto* unmounted = std::get_if<Unmount>(&message.body)) {
    const bool known = client->segments.contains(unmounted->ordinal);
    if (known) unmount(client, unmounted->ordinal);
    answer(connection, request, CodeAnswer{known ? Code::kOk : Code::kSegmentNotFound});
  } else if (std::holds_alternative<Heartbeat>(message.body)) {
    answer(connection, request, HeartbeatAnswer{});
  } else if (auto* report = std::get_if<ReportUnreadable>(&message.body)) {
    on_unreadable(*report, now);
    answer(connection, request, CodeAnswer{Code::kOk});
  } else {
    answer(connection, request, CodeAnswer{Code::kNotSupported});
  }
  for (const SegmentNumber number : std::exchange(pressed_, {})) keep_below_watermark(number, true, now);
  answer_mounts(now);
  if (space_freed_) retry_waiting_puts(now);
  flush_drops();
}

Nanos Master::tick(Nanos now) {
  if (taking_over_) end_takeover(now);
  std::vector<ClientPtr> all;
  for (const auto& [id, client] : clients_) all.push_back(client);
  for (const ClientPtr& client : all) {
    const Nanos silent = now - client->heard;
    if (client->state == State::kLive && silent > std::min(kSilentHeartbeats * options_.heartbeat, options_.client_ttl))
      suspect(client, now);
    if (silent > options_.gone_after * options_.client_ttl) gone(client, false, now);
    if (in_contact(*client) && now - client->grant_asked >= options_.grant / 4) ask_grant(client, now);
    quiet_if_due(client, now);
  }
  if (std::exchange(tombstones_owed_, false))
    for (const ClientPtr& client : all)
      if (!in_contact(*client)) suspect(client, now);
  expire_attempts(now);
  release_held(now);
  release_pins(now);
  if (sweeping_) sweep(now);
  uint32_t draining = 0;
  for (SegmentNumber number = 0; number < segments_.size(); ++number)
    if (keep_below_watermark(number, false, now)) ++draining;
  draining_ = std::max(draining, 1u);
  flush_drops();
  answer_mounts(now);
  retry_waiting_puts(now);
  flush_drops();
  Nanos next = now + options_.heartbeat / 4;
  if (sweeping_ || !mounts_waiting_.empty() || !puts_waiting_.empty()) next = std::min(next, now + kStep);
  if (!holds_.empty()) next = std::min(next, holds_.top().until);
  if (!attempts_due_.empty()) next = std::min(next, attempts_due_.top().first);
  if (taking_over_) next = std::min(next, now + kStep);
  if (draining > 0) next = now;
  return std::max(next, now + kMillisecond);
}

std::vector<Master::SegmentView> Master::segments() const {
  std::vector<SegmentView> views;
  for (const auto& segment : segments_)
    if (segment->mounted)
      views.push_back({segment->info.name, segment->owner->id, segment->space.size(), segment->space.used_bytes(),
                       segment->objects, in_contact(*segment->owner)});
  return views;
}

std::vector<Master::ClientView> Master::clients(Nanos now) const {
  static const char* const kNames[] = {"live", "suspect", "gone"};
  std::vector<ClientView> views;
  for (const auto& [id, client] : clients_)
    views.push_back({id, client->name, kNames[static_cast<int>(client->state)], now - client->heard,
                     in_contact(*client) ? now - client->live_since : 0});
  return views;
}

std::vector<std::string> Master::keys(size_t limit) const {
  std::vector<std::string> all;
  for (ObjectTable::Id id = 0; id < table_.end() && all.size() < limit; ++id)
    if (table_.used(id) && readable(table_[id])) all.emplace_back(table_[id].key());
  return all;
}

}  // namespace tidewire::store
