// SPDX-License-Identifier: Apache-2.0
//
// What the tables of several messages share: texts, ids, keys with versions, segments, inventory entries, places, put
// options; each to and from flat columns. Includes the generated tables: for the codec's .cpp files only.
//
// Writers set Builder::fits to false, and write nothing of use, when a list or a text is beyond what the readers take.
// Readers return false for what is malformed; an absent list is an empty one.
#pragma once

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/protocol.h"
#include "store/messages.h"
#include "store/messages_generated.h"
#include "store/rpc/codec.h"

namespace tidewire::store::wire {

static_assert(std::endian::native == std::endian::little, "columns are copied as they lie in memory");

using flatbuffers::Offset;

constexpr uint32_t kMaxSegments = kMaxBatch;  // of one client
constexpr uint32_t kMaxPlaces = kMaxBatch * kMaxReplicas;

struct Builder {
  explicit Builder(size_t size) : flat(size) {}
  flatbuffers::FlatBufferBuilder flat;
  bool fits = true;

  bool require(bool condition) {
    fits = fits && condition;
    return fits;
  }
};

// ---- columns

// The elements of a foreign vector, in place. False when there are more than `most` or when they don't lie as the
// processor wants them.
template <typename T, typename Vector>
bool read_column(const Vector* vector, size_t most, std::span<const T>* out) {
  *out = {};
  if (vector == nullptr) return true;
  const auto* data = reinterpret_cast<const T*>(vector->Data());
  if (vector->size() > most || reinterpret_cast<uintptr_t>(data) % alignof(T) != 0) return false;
  *out = {data, vector->size()};
  return true;
}

// Exactly `count` elements.
template <typename T, typename Vector>
bool read_column_of(const Vector* vector, size_t count, std::span<const T>* out) {
  return read_column(vector, count, out) && out->size() == count;
}

template <typename T, typename Vector>
bool read_list(const Vector* vector, size_t most, std::vector<T>* out) {
  std::span<const T> column;
  if (!read_column(vector, most, &column)) return false;
  out->assign(column.begin(), column.end());
  return true;
}

template <typename T>
Offset<flatbuffers::Vector<T>> write_list(Builder& to, const std::vector<T>& list) {
  return list.empty() ? 0 : to.flat.CreateVector(list.data(), list.size());
}

template <typename Row>
Offset<flatbuffers::Vector<const Row*>> write_rows(Builder& to, const std::vector<Row>& rows) {
  return rows.empty() ? 0 : to.flat.CreateVectorOfStructs(rows.data(), rows.size());
}

Offset<flatbuffers::Vector<int32_t>> write_codes(Builder& to, const std::vector<Code>& codes);
bool read_codes(const flatbuffers::Vector<int32_t>* vector, std::vector<Code>* out);

// ---- ids and single texts

fb::Id to_wire(const InstanceId& id);
// An absent id is all zero.
InstanceId from_wire(const fb::Id* id);

Offset<flatbuffers::String> write_text(Builder& to, const std::string& text, size_t longest);
bool read_text(const flatbuffers::String* text, size_t longest, std::string* out);

// ---- lists of texts

// `text_of(element)` of each element.
template <typename List, typename TextOf>
Offset<fb::Texts> write_texts(Builder& to, const List& list, size_t longest, TextOf text_of) {
  size_t bytes = 0;
  for (const auto& element : list) {
    const std::string& text = text_of(element);
    if (!to.require(text.size() <= longest)) return 0;
    bytes += text.size();
  }
  if (list.empty()) return 0;
  uint8_t* text_bytes = nullptr;
  const auto text_vector = to.flat.CreateUninitializedVector<uint8_t>(bytes, &text_bytes);
  for (const auto& element : list) {
    const std::string& text = text_of(element);
    std::memcpy(text_bytes, text.data(), text.size());
    text_bytes += text.size();
  }
  uint16_t* lengths = nullptr;
  const auto length_vector = to.flat.CreateUninitializedVector<uint16_t>(list.size(), &lengths);
  for (const auto& element : list) *lengths++ = static_cast<uint16_t>(text_of(element).size());
  return fb::CreateTexts(to.flat, text_vector, length_vector);
}
inline Offset<fb::Texts> write_texts(Builder& to, const std::vector<std::string>& list, size_t longest) {
  return write_texts(to, list, longest, [](const std::string& text) -> const std::string& { return text; });
}

// Foreign texts, one after the other, in place.
class TextsReader {
 public:
  // False when there are more than `most`, when one is longer than `longest`, or when lengths and bytes don't match.
  bool open(const fb::Texts* texts, size_t most, size_t longest);
  size_t size() const { return lengths_.size(); }
  // At most size() times.
  std::string_view next();

 private:
  std::span<const uint16_t> lengths_;
  const char* at_ = nullptr;
  size_t index_ = 0;
};

bool read_texts(const fb::Texts* texts, size_t most, size_t longest, std::vector<std::string>* out);

// ---- the store's lists

Offset<fb::KeyVersions> write_key_versions(Builder& to, const std::vector<KeyVersion>& list);
bool read_key_versions(const fb::KeyVersions* table, std::vector<KeyVersion>* out);

fb::SegmentRow to_wire(const SegmentInfo& segment);
SegmentInfo from_wire(const fb::SegmentRow& row);
Offset<fb::Segments> write_segments(Builder& to, const std::vector<SegmentInfo>& segments);
bool read_segments(const fb::Segments* table, std::vector<SegmentInfo>* out);

Offset<flatbuffers::Vector<const fb::HeldRow*>> write_held(Builder& to, const std::vector<Held>& held);
bool read_held(const flatbuffers::Vector<const fb::HeldRow*>* table, std::vector<Held>* out);
Offset<fb::Entries> write_entries(Builder& to, const std::vector<InventoryEntry>& entries);
bool read_entries(const fb::Entries* table, std::vector<InventoryEntry>* out);

// One row for each of `keys` keys, or one for all.
Offset<fb::PutOptionsList> write_options(Builder& to, const std::vector<PutOptions>& options, size_t keys);
bool read_options(const fb::PutOptionsList* table, size_t keys, std::vector<PutOptions>* out);

// Collects the places of an answer's keys.
class PlacesWriter {
 public:
  PlacesWriter(Builder& to, size_t expected);
  void add(const std::vector<Place>& places);
  Offset<fb::Places> finish();

 private:
  uint32_t index_of(const Place& place);
  size_t slot_of(const SegmentKey& key) const;
  void grow();

  Builder& to_;
  std::vector<const Place*> distinct_;  // one for each segment
  std::vector<uint32_t> slots_;         // hash table over distinct_: index + 1, 0 = free; size is a power of two
  std::vector<uint32_t> segment_;
  std::vector<uint64_t> addresses_;
};

class PlacesReader {
 public:
  bool open(const fb::Places* table);
  // The next `count` places.
  bool take(size_t count, std::vector<Place>* out);
  // Whether all were taken.
  bool done() const { return at_ == addresses_.size(); }

 private:
  std::vector<Place> segments_;  // with address 0
  std::span<const uint32_t> segment_;
  std::span<const uint64_t> addresses_;
  size_t at_ = 0;
};

}  // namespace tidewire::store::wire
