// SPDX-License-Identifier: Apache-2.0
#include "store/rpc/codec_parts.h"

#include <algorithm>
#include <unordered_map>

namespace tidewire::store::wire {

Offset<flatbuffers::Vector<int32_t>> write_codes(Builder& to, const std::vector<Code>& codes) {
  if (!to.require(codes.size() <= kMaxBatch) || codes.empty()) return 0;
  int32_t* numbers = nullptr;
  const auto vector = to.flat.CreateUninitializedVector<int32_t>(codes.size(), &numbers);
  for (const Code code : codes) *numbers++ = static_cast<int32_t>(code);
  return vector;
}

bool read_codes(const flatbuffers::Vector<int32_t>* vector, std::vector<Code>* out) {
  std::span<const int32_t> numbers;
  if (!read_column(vector, kMaxBatch, &numbers)) return false;
  out->reserve(numbers.size());
  for (const int32_t number : numbers) out->push_back(static_cast<Code>(number));
  return true;
}

fb::Id to_wire(const InstanceId& id) {
  fb::Id out;
  static_assert(sizeof out == sizeof id);
  std::memcpy(&out, id.data(), id.size());
  return out;
}

InstanceId from_wire(const fb::Id* id) {
  InstanceId out{};
  if (id != nullptr) std::memcpy(out.data(), id, out.size());
  return out;
}

Offset<flatbuffers::String> write_text(Builder& to, const std::string& text, size_t longest) {
  if (!to.require(text.size() <= longest) || text.empty()) return 0;
  return to.flat.CreateString(text);
}

bool read_text(const flatbuffers::String* text, size_t longest, std::string* out) {
  if (text == nullptr) return true;
  if (text->size() > longest) return false;
  out->assign(text->data(), text->size());
  return true;
}

bool TextsReader::open(const fb::Texts* texts, size_t most, size_t longest) {
  if (texts == nullptr) return true;
  if (!read_column(texts->lengths(), most, &lengths_)) return false;
  size_t bytes = 0;
  uint16_t longest_here = 0;
  for (const uint16_t length : lengths_) {
    bytes += length;
    longest_here = std::max(longest_here, length);
  }
  const size_t there = texts->bytes() != nullptr ? texts->bytes()->size() : 0;
  if (longest_here > longest || bytes != there) return false;
  at_ = there != 0 ? reinterpret_cast<const char*>(texts->bytes()->Data()) : "";
  return true;
}

std::string_view TextsReader::next() {
  const std::string_view text(at_, lengths_[index_++]);
  at_ += text.size();
  return text;
}

bool read_texts(const fb::Texts* texts, size_t most, size_t longest, std::vector<std::string>* out) {
  TextsReader reader;
  if (!reader.open(texts, most, longest)) return false;
  out->reserve(reader.size());
  for (size_t i = 0; i < reader.size(); ++i) out->emplace_back(reader.next());
  return true;
}

Offset<fb::KeyVersions> write_key_versions(Builder& to, const std::vector<KeyVersion>& list) {
  if (!to.require(list.size() <= kMaxBatch) || list.empty()) return 0;
  const auto keys =
      write_texts(to, list, kMaxKeyBytes, [](const KeyVersion& one) -> const std::string& { return one.key; });
  uint64_t* version = nullptr;
  const auto versions = to.flat.CreateUninitializedVector<uint64_t>(list.size(), &version);
  for (const KeyVersion& one : list) *version++ = one.version;
  return fb::CreateKeyVersions(to.flat, keys, versions);
}

bool read_key_versions(const fb::KeyVersions* table, std::vector<KeyVersion>* out) {
  if (table == nullptr) return true;
  TextsReader keys;
  std::span<const uint64_t> versions;
  if (!keys.open(table->keys(), kMaxBatch, kMaxKeyBytes) || !read_column_of(table->versions(), keys.size(), &versions))
    return false;
  out->reserve(versions.size());
  for (const uint64_t version : versions) out->push_back({std::string(keys.next()), version});
  return true;
}

fb::SegmentRow to_wire(const SegmentInfo& segment) {
  return {segment.base, segment.size, segment.ordinal};
}

SegmentInfo from_wire(const fb::SegmentRow& row) {
  return {row.ordinal(), {}, row.base(), row.size()};
}

Offset<fb::Segments> write_segments(Builder& to, const std::vector<SegmentInfo>& segments) {
  if (!to.require(segments.size() <= kMaxSegments) || segments.empty()) return 0;
  std::vector<fb::SegmentRow> rows;
  rows.reserve(segments.size());
  for (const SegmentInfo& segment : segments) rows.push_back(to_wire(segment));
  const auto names = write_texts(to, segments, control::kMaxNameBytes,
                                 [](const SegmentInfo& segment) -> const std::string& { return segment.name; });
  return fb::CreateSegments(to.flat, write_rows(to, rows), names);
}

bool read_segments(const fb::Segments* table, std::vector<SegmentInfo>* out) {
  if (table == nullptr) return true;
  std::span<const fb::SegmentRow> rows;
  TextsReader names;
  if (!read_column(table->rows(), kMaxSegments, &rows) ||
      !names.open(table->names(), rows.size(), control::kMaxNameBytes) || names.size() != rows.size())
    return false;
  out->reserve(rows.size());
  for (const fb::SegmentRow& row : rows) {
    out->push_back(from_wire(row));
    out->back().name = names.next();
  }
  return true;
}

Offset<flatbuffers::Vector<const fb::HeldRow*>> write_held(Builder& to, const std::vector<Held>& held) {
  if (!to.require(held.size() <= kMaxBatch) || held.empty()) return 0;
  std::vector<fb::HeldRow> rows;
  rows.reserve(held.size());
  for (const Held& each : held) rows.emplace_back(each.offset, each.size, each.remaining, each.segment);
  return write_rows(to, rows);
}

bool read_held(const flatbuffers::Vector<const fb::HeldRow*>* table, std::vector<Held>* out) {
  std::span<const fb::HeldRow> rows;
  if (!read_column(table, kMaxBatch, &rows)) return false;
  out->reserve(rows.size());
  for (const fb::HeldRow& row : rows) out->push_back({row.segment(), row.offset(), row.size(), row.remaining()});
  return true;
}

Offset<fb::Entries> write_entries(Builder& to, const std::vector<InventoryEntry>& entries) {
  if (!to.require(entries.size() <= kMaxBatch) || entries.empty()) return 0;
  std::vector<fb::EntryRow> rows;
  rows.reserve(entries.size());
  bool grouped = false;
  for (const InventoryEntry& entry : entries) {
    rows.emplace_back(entry.version, entry.offset, entry.size, entry.checksum, entry.segment, entry.flags);
    grouped = grouped || !entry.group.empty();
  }
  const auto keys = write_texts(to, entries, kMaxKeyBytes,
                                [](const InventoryEntry& entry) -> const std::string& { return entry.key; });
  Offset<fb::Texts> groups;
  if (grouped)
    groups = write_texts(to, entries, kMaxKeyBytes,
                         [](const InventoryEntry& entry) -> const std::string& { return entry.group; });
  return fb::CreateEntries(to.flat, write_rows(to, rows), keys, groups);
}

bool read_entries(const fb::Entries* table, std::vector<InventoryEntry>* out) {
  if (table == nullptr) return true;
  std::span<const fb::EntryRow> rows;
  TextsReader keys, groups;
  if (!read_column(table->rows(), kMaxBatch, &rows) || !keys.open(table->keys(), rows.size(), kMaxKeyBytes) ||
      keys.size() != rows.size() || !groups.open(table->groups(), rows.size(), kMaxKeyBytes) ||
      (table->groups() != nullptr && groups.size() != rows.size()))
    return false;
  out->reserve(rows.size());
  for (const fb::EntryRow& row : rows) {
    InventoryEntry& entry = out->emplace_back();
    entry.key = keys.next();
    entry.version = row.version();
    entry.segment = row.segment();
    entry.offset = row.offset();
    entry.size = row.size();
    entry.checksum = row.checksum();
    entry.flags = row.flags();
    if (groups.size() != 0) entry.group = groups.next();
  }
  return true;
}

Offset<fb::PutOptionsList> write_options(Builder& to, const std::vector<PutOptions>& options, size_t keys) {
  if (!to.require(options.size() == keys || options.size() == 1) || options.empty()) return 0;
  std::vector<fb::OptionsRow> rows;
  rows.reserve(options.size());
  std::vector<uint32_t> preferred;
  std::vector<std::string> names;
  std::unordered_map<std::string_view, uint32_t> known;
  for (const PutOptions& one : options) {
    if (!to.require(one.preferred_segments.size() <= kMaxPreferred)) return 0;
    rows.emplace_back(one.soft_pin_ttl, one.replicas, static_cast<uint32_t>(one.preferred_segments.size()),
                      static_cast<uint8_t>(one.soft_pin), one.data_type, one.hard_pin, one.prefer_same_host);
    for (const std::string& name : one.preferred_segments) {
      const auto [found, added] = known.try_emplace(name, static_cast<uint32_t>(names.size()));
      if (added) names.push_back(name);
      preferred.push_back(found->second);
    }
  }
  if (!to.require(preferred.size() <= kMaxPreferredTogether)) return 0;
  const auto name_texts = write_texts(to, names, control::kMaxNameBytes);
  const auto preferred_list = write_list(to, preferred);
  return fb::CreatePutOptionsList(to.flat, write_rows(to, rows), preferred_list, name_texts);
}

bool read_options(const fb::PutOptionsList* table, size_t keys, std::vector<PutOptions>* out) {
  if (table == nullptr) return keys == 0;
  std::span<const fb::OptionsRow> rows;
  std::span<const uint32_t> preferred;
  std::vector<std::string> names;
  if (!read_column(table->rows(), std::max<size_t>(keys, 1), &rows) || (rows.size() != keys && rows.size() != 1) ||
      !read_column(table->preferred(), kMaxPreferredTogether, &preferred) ||
      !read_texts(table->segment_names(), preferred.size(), control::kMaxNameBytes, &names))
    return false;
  size_t at = 0;
  out->reserve(rows.size());
  for (const fb::OptionsRow& row : rows) {
    if (row.soft_pin() > static_cast<uint8_t>(PinAction::kDisable) || row.preferred() > kMaxPreferred ||
        row.preferred() > preferred.size() - at)
      return false;
    PutOptions& one = out->emplace_back();
    one.replicas = row.replicas();
    one.soft_pin = static_cast<PinAction>(row.soft_pin());
    one.soft_pin_ttl = row.soft_pin_ttl();
    one.hard_pin = row.hard_pin();
    one.prefer_same_host = row.prefer_same_host();
    one.data_type = row.data_type();
    one.preferred_segments.reserve(row.preferred());
    for (const uint32_t index : preferred.subspan(at, row.preferred())) {
      if (index >= names.size()) return false;
      one.preferred_segments.push_back(names[index]);
    }
    at += row.preferred();
  }
  return at == preferred.size();
}

PlacesWriter::PlacesWriter(Builder& to, size_t expected) : to_(to), slots_(16) {
  segment_.reserve(expected);
  addresses_.reserve(expected);
}

void PlacesWriter::add(const std::vector<Place>& places) {
  if (!to_.require(places.size() <= kMaxReplicas && addresses_.size() + places.size() <= kMaxPlaces)) return;
  for (const Place& place : places) {
    segment_.push_back(index_of(place));
    addresses_.push_back(place.address);
  }
}

// Where the key stands or would stand. Ids are random, but chosen by clients: the multiplications spread whatever they
// are over the table.
size_t PlacesWriter::slot_of(const SegmentKey& key) const {
  uint64_t halves[2];
  std::memcpy(halves, key.owner.data(), sizeof halves);
  uint64_t hash = (halves[0] ^ key.ordinal) * 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 32 ^ halves[1]) * 0xd6e8feb86659fd93;
  return (hash ^ hash >> 32) & (slots_.size() - 1);
}

uint32_t PlacesWriter::index_of(const Place& place) {
  size_t slot = slot_of(place.segment);
  // One segment has one endpoint; should an answer say otherwise, each is kept.
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    const Place& other = *distinct_[slots_[slot] - 1];
    if (other.segment == place.segment && other.endpoint == place.endpoint) return slots_[slot] - 1;
  }
  distinct_.push_back(&place);
  slots_[slot] = static_cast<uint32_t>(distinct_.size());
  if (distinct_.size() * 2 > slots_.size()) grow();
  return static_cast<uint32_t>(distinct_.size() - 1);
}

void PlacesWriter::grow() {
  slots_.assign(slots_.size() * 4, 0);
  for (size_t i = 0; i < distinct_.size(); ++i) {
    size_t slot = slot_of(distinct_[i]->segment);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

Offset<fb::Places> PlacesWriter::finish() {
  if (!to_.fits || addresses_.empty()) return 0;
  std::vector<fb::SegmentOfPlaces> segments;
  segments.reserve(distinct_.size());
  for (const Place* place : distinct_) segments.emplace_back(to_wire(place->segment.owner), place->segment.ordinal);
  const auto endpoints = write_texts(to_, distinct_, control::kMaxNameBytes,
                                     [](const Place* place) -> const std::string& { return place->endpoint; });
  const auto segment_rows = write_rows(to_, segments);
  const auto indexes = write_list(to_, segment_);
  const auto addresses = write_list(to_, addresses_);
  return fb::CreatePlaces(to_.flat, segment_rows, endpoints, indexes, addresses);
}

bool PlacesReader::open(const fb::Places* table) {
  if (table == nullptr) return true;
  std::span<const fb::SegmentOfPlaces> rows;
  TextsReader endpoints;
  if (!read_column(table->addresses(), kMaxPlaces, &addresses_) ||
      !read_column_of(table->segment(), addresses_.size(), &segment_) ||
      !read_column(table->segments(), addresses_.size(), &rows) ||
      !endpoints.open(table->endpoints(), rows.size(), control::kMaxNameBytes) || endpoints.size() != rows.size())
    return false;
  segments_.reserve(rows.size());
  for (const fb::SegmentOfPlaces& row : rows)
    segments_.push_back({{from_wire(&row.owner()), row.ordinal()}, std::string(endpoints.next()), 0});
  return true;
}

bool PlacesReader::take(size_t count, std::vector<Place>* out) {
  if (count > kMaxReplicas || count > addresses_.size() - at_) return false;
  out->reserve(count);
  for (; count > 0; --count, ++at_) {
    if (segment_[at_] >= segments_.size()) return false;
    out->push_back(segments_[segment_[at_]]);
    out->back().address = addresses_[at_];
  }
  return true;
}

}  // namespace tidewire::store::wire
