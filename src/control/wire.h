// SPDX-License-Identifier: Apache-2.0
//
// What the encoders and decoders of messages share. Includes the generated tables: for .cpp files of this layer only.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/frame.h"
#include "control/messages_generated.h"
#include "transport/peer_record.h"

namespace tidewire::control::wire {

// Bounds on the shape of foreign tables; our deepest has three levels.
constexpr uint32_t kMaxDepth = 8;
constexpr uint32_t kMaxTables = 4 * kMaxRails;

// The table in the payload, or nullptr when the bytes are not one.
template <typename Table>
const Table* verified(std::span<const uint8_t> payload) {
  flatbuffers::Verifier verifier(payload.data(), payload.size(), kMaxDepth, kMaxTables);
  if (payload.size() < sizeof(uint32_t) || !verifier.VerifyBuffer<Table>(nullptr)) return nullptr;
  return flatbuffers::GetRoot<Table>(payload.data());
}

template <typename Table>
std::vector<uint8_t> finish(flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<Table> root, FrameType type,
                            uint64_t request) {
  builder.Finish(root);
  return encode_frame(type, request, {builder.GetBufferPointer(), builder.GetSize()});
}

inline Status malformed(const char* what) {
  return Status::error(Code::kProtocol, "malformed {} from the other side", what);
}

// Absent texts are empty; too long ones are refused.
inline bool read_text(const flatbuffers::String* text, size_t limit, std::string* out) {
  if (text == nullptr) return true;
  if (text->size() > limit) return false;
  out->assign(text->data(), text->size());
  return true;
}

// Exactly as many bytes as `out` has.
template <size_t kSize>
bool read_array(const flatbuffers::Vector<uint8_t>* bytes, std::array<uint8_t, kSize>* out) {
  if (bytes == nullptr || bytes->size() != kSize) return false;
  std::copy_n(bytes->data(), kSize, out->begin());
  return true;
}

inline bool read_id(const flatbuffers::Vector<uint8_t>* bytes, InstanceId* out) {
  return read_array(bytes, out);
}

}  // namespace tidewire::control::wire
