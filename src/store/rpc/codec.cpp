// SPDX-License-Identifier: Apache-2.0
//
// Which table a frame holds is looked up by the struct's index in Body.
#include "store/rpc/codec.h"

#include <array>
#include <type_traits>
#include <utility>

#include "store/rpc/codec_bodies.h"

namespace tidewire::store {
namespace {

using namespace wire;

// Bounds on the shape of foreign tables: ours nest three deep and are few, because lists are columns.
constexpr uint32_t kMaxDepth = 8;
constexpr uint32_t kMaxTables = 64;

constexpr size_t kBodies = std::variant_size_v<Body>;
static_assert(kBodies <= kAnswerBit - kFirstStoreFrame);

// In Body's order.
constexpr std::array<const char*, kBodies> kNames = {
    "Attach",         "AttachAnswer", "InventoryChunk", "Heartbeat",        "HeartbeatAnswer", "Mount",
    "Unmount",        "PutStart",     "PutStartAnswer", "PutEnd",           "PutRevoke",       "PutRenew",
    "PutRenewAnswer", "Get",          "GetAnswer",      "Exists",           "Remove",          "RemoveMatching",
    "CountAnswer",    "CodesAnswer",  "CodeAnswer",     "ReportUnreadable", "Grant",           "GrantAnswer",
    "Record",         "Drop",         "Quiet"};

// So many bytes that the buffer need not grow, as a rule.
template <typename Struct>
size_t expected_bytes(const Struct& body) {
  constexpr size_t kBase = 256;
  const auto text_bytes = [](const auto& list, auto text_of) {
    size_t bytes = 0;
    for (const auto& element : list) bytes += text_of(element).size();
    return bytes;
  };
  const auto key_of = [](const auto& element) -> const std::string& { return element.key; };
  if constexpr (requires { body.keys; }) {
    return kBase + text_bytes(body.keys, [](const std::string& key) -> const std::string& { return key; }) +
           16 * body.keys.size();
  } else if constexpr (requires { body.entries.front().key; }) {
    return kBase + text_bytes(body.entries, key_of) + 64 * body.entries.size();
  } else if constexpr (requires { body.puts.front().key; }) {
    return kBase + text_bytes(body.puts, key_of) + 32 * body.puts.size();
  } else if constexpr (requires { body.gets; }) {
    return kBase + 64 * body.gets.size();
  } else if constexpr (requires { body.puts; }) {
    return kBase + 64 * body.puts.size();
  } else if constexpr (requires { body.codes; }) {
    return kBase + sizeof(int32_t) * body.codes.size();
  } else {
    return kBase;
  }
}

// The table that write() makes of a struct.
template <typename Table>
Table table_of(Offset<Table> offset);

template <size_t kIndex>
bool read_body(std::span<const uint8_t> payload, Body* out) {
  using Struct = std::variant_alternative_t<kIndex, Body>;
  using Table = decltype(table_of(write(std::declval<Builder&>(), std::declval<const Struct&>())));
  flatbuffers::Verifier verifier(payload.data(), payload.size(), kMaxDepth, kMaxTables);
  if (payload.size() < sizeof(uint32_t) || !verifier.VerifyBuffer<Table>(nullptr)) return false;
  return read(*flatbuffers::GetRoot<Table>(payload.data()), &out->emplace<kIndex>());
}

using Reader = bool (*)(std::span<const uint8_t> payload, Body* out);
template <size_t... kIndexes>
constexpr std::array<Reader, kBodies> readers(std::index_sequence<kIndexes...>) {
  return {&read_body<kIndexes>...};
}
constexpr std::array<Reader, kBodies> kReaders = readers(std::make_index_sequence<kBodies>());

}  // namespace

const char* message_name(const Body& body) {
  return kNames[body.index()];
}

std::vector<uint8_t> encode(const Message& message) {
  const auto type = static_cast<uint8_t>((kFirstStoreFrame + message.body.index()) | (message.answer ? kAnswerBit : 0));
  return std::visit(
      [&](const auto& body) -> std::vector<uint8_t> {
        Builder builder(expected_bytes(body));
        const auto root = write(builder, body);
        if (!builder.fits) return {};
        builder.flat.Finish(root);
        if (builder.flat.GetSize() > kMaxMessageBytes) return {};
        return control::encode_frame(static_cast<control::FrameType>(type), message.request,
                                     {builder.flat.GetBufferPointer(), builder.flat.GetSize()});
      },
      message.body);
}

Result<Message> decode(const control::Frame& frame) {
  const auto type = static_cast<uint8_t>(frame.type);
  const uint8_t number = type & static_cast<uint8_t>(~kAnswerBit);
  if (number < kFirstStoreFrame)
    return Status::error(tidewire::Code::kProtocol, "a frame of type {} is no message of the store", type);
  const size_t index = number - kFirstStoreFrame;
  if (index >= kBodies)
    return Status::error(tidewire::Code::kUnsupported, "messages of type {} are unknown here: upgrade the older side",
                         type);
  Message message;
  message.request = frame.request;
  message.answer = (type & kAnswerBit) != 0;
  if (!kReaders[index](frame.payload, &message.body))
    return Status::error(tidewire::Code::kProtocol, "malformed {} from the other side", kNames[index]);
  return message;
}

}  // namespace tidewire::store
