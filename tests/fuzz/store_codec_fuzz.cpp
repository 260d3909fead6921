// SPDX-License-Identifier: Apache-2.0
//
// One input for the decoder of the store's messages. The first byte is the frame's type, the rest its payload. Built as
// a libFuzzer program with clang, and into a test that shakes encoded messages (store_codec_replay_test.cpp) with any
// compiler.
#include <cstdint>
#include <cstdlib>
#include <variant>

#include "store/rpc/codec.h"

namespace {

using namespace tidewire;
using namespace tidewire::store;

void check(bool condition) {
  if (!condition) std::abort();
}

template <typename T>
void check_list(const std::vector<T>& list) {
  check(list.size() <= kMaxBatch);
}
void check_list(const std::vector<std::string>& keys) {
  check(keys.size() <= kMaxBatch);
  for (const std::string& key : keys) check(key.size() <= kMaxKeyBytes);
}

// What the store relies on without looking again.
template <typename T>
void check_bounds(const T& body) {
  if constexpr (requires { body.keys; }) check_list(body.keys);
  if constexpr (requires { body.entries.size(); }) check_list(body.entries);
  if constexpr (requires { body.codes; }) check_list(body.codes);
  if constexpr (requires { body.puts; }) check_list(body.puts);
  if constexpr (std::is_same_v<T, PutStart>) {
    const size_t keys = body.keys.size();
    check(body.sizes.size() == keys && (body.options.size() == keys || body.options.size() == 1) &&
          (body.groups.empty() || body.groups.size() == keys));
  }
  if constexpr (std::is_same_v<T, PutEnd>)
    check(body.checksums.size() == body.puts.size() && body.written.size() == body.puts.size());
  if constexpr (std::is_same_v<T, Drop>) check(body.holds.empty() || body.holds.size() == body.entries.size());
  if constexpr (std::is_same_v<T, GetAnswer>) {
    check_list(body.gets);
    for (const GetPlace& get : body.gets) check(get.places.size() <= kMaxReplicas);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  control::Frame frame;
  frame.type = static_cast<control::FrameType>(data[0]);
  frame.request = size;
  frame.payload.assign(data + 1, data + size);
  const Result<Message> message = decode(frame);
  if (!message.ok()) {
    check(message.status().code() == tidewire::Code::kProtocol ||
          message.status().code() == tidewire::Code::kUnsupported);
    return 0;
  }
  check(message->request == size);
  std::visit([](const auto& body) { check_bounds(body); }, message->body);
  // What is taken can be sent on, and says the same again.
  const std::vector<uint8_t> bytes = encode(*message);
  check(bytes.size() >= control::kFrameHeaderBytes);
  control::Frame again;
  again.type = static_cast<control::FrameType>(bytes[5]);
  again.request = size;
  again.payload.assign(bytes.begin() + control::kFrameHeaderBytes, bytes.end());
  const Result<Message> second = decode(again);
  check(second.ok() && second->body.index() == message->body.index() && encode(*second) == bytes);
  return 0;
}
