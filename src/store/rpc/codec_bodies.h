// SPDX-License-Identifier: Apache-2.0
//
// For each struct of messages.h a write() of its table and a read() of a foreign one; in the order of messages.h. For
// codec.cpp only.
#pragma once

#include <vector>

#include "store/rpc/codec_parts.h"

namespace tidewire::store::wire {

inline int32_t number(Code code) {
  return static_cast<int32_t>(code);
}
inline Code code(int32_t number) {
  return static_cast<Code>(number);
}

// ---- client to master

inline auto write(Builder& to, const Attach& body) {
  const auto name = write_text(to, body.name, control::kMaxNameBytes);
  const auto host = write_text(to, body.host_id, control::kMaxNameBytes);
  const auto segments = write_segments(to, body.segments);
  const fb::Id client = to_wire(body.client), master = to_wire(body.master);
  return fb::CreateAttach(to.flat, &client, name, host, body.term, &master, body.generation, segments, body.entries);
}
inline bool read(const fb::Attach& from, Attach* body) {
  body->client = from_wire(from.client());
  body->term = from.term();
  body->master = from_wire(from.master());
  body->generation = from.generation();
  body->entries = from.entries();
  return read_text(from.name(), control::kMaxNameBytes, &body->name) &&
         read_text(from.host_id(), control::kMaxNameBytes, &body->host_id) &&
         read_segments(from.segments(), &body->segments);
}

inline auto write(Builder& to, const AttachAnswer& body) {
  const fb::Id master = to_wire(body.master);
  return fb::CreateAttachAnswer(to.flat, number(body.code), body.term, &master, body.generation,
                                static_cast<uint8_t>(body.inventory), body.heartbeat, body.client_ttl, body.max_lease);
}
inline bool read(const fb::AttachAnswer& from, AttachAnswer* body) {
  if (from.inventory() > static_cast<uint8_t>(InventoryWish::kClear)) return false;
  *body = {code(from.code()),
           from.term(),
           from_wire(from.master()),
           from.generation(),
           static_cast<InventoryWish>(from.inventory()),
           from.heartbeat(),
           from.client_ttl(),
           from.max_lease()};
  return true;
}

inline auto write(Builder& to, const InventoryChunk& body) {
  const auto entries = write_entries(to, body.entries);
  return fb::CreateInventoryChunk(to.flat, entries, body.last, write_held(to, body.held));
}
inline bool read(const fb::InventoryChunk& from, InventoryChunk* body) {
  body->last = from.last();
  return read_held(from.held(), &body->held) && read_entries(from.entries(), &body->entries);
}

inline auto write(Builder& to, const Heartbeat&) {
  return fb::CreateHeartbeat(to.flat);
}
inline bool read(const fb::Heartbeat&, Heartbeat*) {
  return true;
}

inline auto write(Builder& to, const HeartbeatAnswer& body) {
  return fb::CreateHeartbeatAnswer(to.flat, number(body.code));
}
inline bool read(const fb::HeartbeatAnswer& from, HeartbeatAnswer* body) {
  body->code = code(from.code());
  return true;
}

inline auto write(Builder& to, const Mount& body) {
  const auto name = write_text(to, body.segment.name, control::kMaxNameBytes);
  const fb::SegmentRow row = to_wire(body.segment);
  return fb::CreateMount(to.flat, &row, name);
}
inline bool read(const fb::Mount& from, Mount* body) {
  if (from.segment() == nullptr) return false;
  body->segment = from_wire(*from.segment());
  return read_text(from.name(), control::kMaxNameBytes, &body->segment.name);
}

inline auto write(Builder& to, const Unmount& body) {
  return fb::CreateUnmount(to.flat, body.ordinal);
}
inline bool read(const fb::Unmount& from, Unmount* body) {
  body->ordinal = from.ordinal();
  return true;
}

inline Offset<fb::PutStart> write(Builder& to, const PutStart& body) {
  const size_t keys = body.keys.size();
  if (!to.require(keys <= kMaxBatch && body.sizes.size() == keys &&
                  (body.groups.empty() || body.groups.size() == keys)))
    return 0;
  const auto key_texts = write_texts(to, body.keys, kMaxKeyBytes);
  const auto sizes = write_list(to, body.sizes);
  const auto options = write_options(to, body.options, keys);
  const auto groups = write_texts(to, body.groups, kMaxKeyBytes);
  return fb::CreatePutStart(to.flat, key_texts, sizes, options, groups, body.upsert);
}
inline bool read(const fb::PutStart& from, PutStart* body) {
  body->upsert = from.upsert();
  if (!read_texts(from.keys(), kMaxBatch, kMaxKeyBytes, &body->keys)) return false;
  const size_t keys = body->keys.size();
  return read_list(from.sizes(), keys, &body->sizes) && body->sizes.size() == keys &&
         read_options(from.options(), keys, &body->options) &&
         read_texts(from.groups(), keys, kMaxKeyBytes, &body->groups) &&
         (from.groups() == nullptr || body->groups.size() == keys);
}

inline Offset<fb::PutStartAnswer> write(Builder& to, const PutStartAnswer& body) {
  if (!to.require(body.puts.size() <= kMaxBatch)) return 0;
  std::vector<fb::PutRow> rows;
  rows.reserve(body.puts.size());
  PlacesWriter places(to, body.puts.size());
  for (const PutPlace& put : body.puts) {
    rows.emplace_back(put.version, number(put.code), static_cast<uint32_t>(put.places.size()));
    places.add(put.places);
  }
  const auto put_rows = write_rows(to, rows);
  return fb::CreatePutStartAnswer(to.flat, body.lease, put_rows, places.finish());
}
inline bool read(const fb::PutStartAnswer& from, PutStartAnswer* body) {
  body->lease = from.lease();
  std::span<const fb::PutRow> rows;
  PlacesReader places;
  if (!read_column(from.puts(), kMaxBatch, &rows) || !places.open(from.places())) return false;
  body->puts.reserve(rows.size());
  for (const fb::PutRow& row : rows) {
    PutPlace& put = body->puts.emplace_back();
    put.code = code(row.code());
    put.version = row.version();
    if (!places.take(row.places(), &put.places)) return false;
  }
  return places.done();
}

inline Offset<fb::PutEnd> write(Builder& to, const PutEnd& body) {
  if (!to.require(body.checksums.size() == body.puts.size() && body.written.size() == body.puts.size())) return 0;
  const auto puts = write_key_versions(to, body.puts);
  const auto checksums = write_list(to, body.checksums);
  const auto written = write_list(to, body.written);
  return fb::CreatePutEnd(to.flat, puts, checksums, written);
}
inline bool read(const fb::PutEnd& from, PutEnd* body) {
  if (!read_key_versions(from.puts(), &body->puts)) return false;
  const size_t puts = body->puts.size();
  return read_list(from.checksums(), puts, &body->checksums) && body->checksums.size() == puts &&
         read_list(from.written(), puts, &body->written) && body->written.size() == puts;
}

inline auto write(Builder& to, const PutRevoke& body) {
  const auto puts = write_key_versions(to, body.puts);
  return fb::CreatePutRevoke(to.flat, puts, body.quiet);
}
inline bool read(const fb::PutRevoke& from, PutRevoke* body) {
  body->quiet = from.quiet();
  return read_key_versions(from.puts(), &body->puts);
}

inline auto write(Builder& to, const PutRenew& body) {
  const auto puts = write_key_versions(to, body.puts);
  return fb::CreatePutRenew(to.flat, puts);
}
inline bool read(const fb::PutRenew& from, PutRenew* body) {
  return read_key_versions(from.puts(), &body->puts);
}

inline auto write(Builder& to, const PutRenewAnswer& body) {
  const auto codes = write_codes(to, body.codes);
  return fb::CreatePutRenewAnswer(to.flat, body.lease, codes);
}
inline bool read(const fb::PutRenewAnswer& from, PutRenewAnswer* body) {
  body->lease = from.lease();
  return read_codes(from.codes(), &body->codes);
}

inline auto write_keys(Builder& to, const std::vector<std::string>& keys) {
  return to.require(keys.size() <= kMaxBatch) ? write_texts(to, keys, kMaxKeyBytes) : 0;
}

inline auto write(Builder& to, const Get& body) {
  const auto keys = write_keys(to, body.keys);
  return fb::CreateGet(to.flat, keys);
}
inline bool read(const fb::Get& from, Get* body) {
  return read_texts(from.keys(), kMaxBatch, kMaxKeyBytes, &body->keys);
}

inline Offset<fb::GetAnswer> write(Builder& to, const GetAnswer& body) {
  if (!to.require(body.gets.size() <= kMaxBatch)) return 0;
  std::vector<fb::GetRow> rows;
  rows.reserve(body.gets.size());
  PlacesWriter places(to, body.gets.size());
  for (const GetPlace& get : body.gets) {
    rows.emplace_back(get.version, get.size, get.checksum, number(get.code), static_cast<uint32_t>(get.places.size()));
    places.add(get.places);
  }
  const auto get_rows = write_rows(to, rows);
  return fb::CreateGetAnswer(to.flat, body.lease, get_rows, places.finish());
}
inline bool read(const fb::GetAnswer& from, GetAnswer* body) {
  body->lease = from.lease();
  std::span<const fb::GetRow> rows;
  PlacesReader places;
  if (!read_column(from.gets(), kMaxBatch, &rows) || !places.open(from.places())) return false;
  body->gets.reserve(rows.size());
  for (const fb::GetRow& row : rows) {
    GetPlace& get = body->gets.emplace_back();
    get.code = code(row.code());
    get.version = row.version();
    get.size = row.size();
    get.checksum = row.checksum();
    if (!places.take(row.places(), &get.places)) return false;
  }
  return places.done();
}

inline auto write(Builder& to, const Exists& body) {
  const auto keys = write_keys(to, body.keys);
  return fb::CreateExists(to.flat, keys);
}
inline bool read(const fb::Exists& from, Exists* body) {
  return read_texts(from.keys(), kMaxBatch, kMaxKeyBytes, &body->keys);
}

inline auto write(Builder& to, const Remove& body) {
  const auto keys = write_keys(to, body.keys);
  return fb::CreateRemove(to.flat, keys, body.force);
}
inline bool read(const fb::Remove& from, Remove* body) {
  body->force = from.force();
  return read_texts(from.keys(), kMaxBatch, kMaxKeyBytes, &body->keys);
}

inline auto write(Builder& to, const RemoveMatching& body) {
  const auto pattern = write_text(to, body.pattern, kMaxKeyBytes);
  return fb::CreateRemoveMatching(to.flat, pattern, body.force);
}
inline bool read(const fb::RemoveMatching& from, RemoveMatching* body) {
  body->force = from.force();
  return read_text(from.pattern(), kMaxKeyBytes, &body->pattern);
}

inline auto write(Builder& to, const CountAnswer& body) {
  return fb::CreateCountAnswer(to.flat, number(body.code), body.count);
}
inline bool read(const fb::CountAnswer& from, CountAnswer* body) {
  *body = {code(from.code()), from.count()};
  return true;
}

inline auto write(Builder& to, const CodesAnswer& body) {
  const auto codes = write_codes(to, body.codes);
  return fb::CreateCodesAnswer(to.flat, codes);
}
inline bool read(const fb::CodesAnswer& from, CodesAnswer* body) {
  return read_codes(from.codes(), &body->codes);
}

inline auto write(Builder& to, const CodeAnswer& body) {
  return fb::CreateCodeAnswer(to.flat, number(body.code));
}
inline bool read(const fb::CodeAnswer& from, CodeAnswer* body) {
  body->code = code(from.code());
  return true;
}

inline auto write(Builder& to, const ReportUnreadable& body) {
  const fb::Id owner = to_wire(body.owner);
  return fb::CreateReportUnreadable(to.flat, &owner);
}
inline bool read(const fb::ReportUnreadable& from, ReportUnreadable* body) {
  body->owner = from_wire(from.owner());
  return true;
}

// ---- master to client

inline auto write(Builder& to, const Grant& body) {
  const fb::Id master = to_wire(body.master);
  return fb::CreateGrant(to.flat, body.term, &master, body.generation, body.lease);
}
inline bool read(const fb::Grant& from, Grant* body) {
  *body = {from.term(), from_wire(from.master()), from.generation(), from.lease()};
  return true;
}

inline auto write(Builder& to, const GrantAnswer& body) {
  return fb::CreateGrantAnswer(to.flat, number(body.code), body.term, body.wait);
}
inline bool read(const fb::GrantAnswer& from, GrantAnswer* body) {
  *body = {code(from.code()), from.term(), from.wait()};
  return true;
}

inline auto write(Builder& to, const Record& body) {
  const auto entries = write_entries(to, body.entries);
  return fb::CreateRecord(to.flat, body.term, entries);
}
inline bool read(const fb::Record& from, Record* body) {
  body->term = from.term();
  return read_entries(from.entries(), &body->entries);
}

inline Offset<fb::Drop> write(Builder& to, const Drop& body) {
  if (!to.require(body.holds.empty() || body.holds.size() == body.entries.size())) return 0;
  const auto entries = write_key_versions(to, body.entries);
  const auto holds = write_list(to, body.holds);
  return fb::CreateDrop(to.flat, body.term, body.generation, entries, holds);
}
inline bool read(const fb::Drop& from, Drop* body) {
  body->term = from.term();
  body->generation = from.generation();
  return read_key_versions(from.entries(), &body->entries) &&
         read_list(from.holds(), body->entries.size(), &body->holds) &&
         (body->holds.empty() || body->holds.size() == body->entries.size());
}

inline auto write(Builder& to, const Quiet& body) {
  const auto endpoint = write_text(to, body.endpoint, control::kMaxNameBytes);
  const fb::Id writer = to_wire(body.writer);
  return fb::CreateQuiet(to.flat, body.term, &writer, endpoint);
}
inline bool read(const fb::Quiet& from, Quiet* body) {
  body->term = from.term();
  body->writer = from_wire(from.writer());
  return read_text(from.endpoint(), control::kMaxNameBytes, &body->endpoint);
}

}  // namespace tidewire::store::wire
