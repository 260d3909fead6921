// SPDX-License-Identifier: Apache-2.0
//
// One input for every parser of foreign bytes of the control plane and of metadata. The first byte chooses the parser,
// the rest is its input. Built as a libFuzzer program with clang, and into a test that replays the corpus
// (control_replay_test.cpp) with any compiler.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "control/address.h"
#include "control/frame.h"
#include "control/handshake.h"
#include "control/messages.h"
#include "metadata/http_response.h"

namespace {

using namespace tidewire;
using namespace tidewire::control;

void check(bool condition) {
  if (!condition) std::abort();
}

HandshakeConfig config(uint8_t number, bool secret) {
  HandshakeConfig out;
  out.instance.fill(number);
  out.name = "engine:1";
  out.nonce.fill(number);
  if (secret) out.secret = "a secret of sixteen bytes";
  return out;
}

// Feeds no more than wanted, in pieces that the input itself chooses.
template <typename Parser>
void feed_in_pieces(Parser& parser, ByteSpan bytes) {
  size_t at = 0;
  while (at < bytes.size() && parser.wanted() > 0) {
    const size_t size = std::min({parser.wanted(), bytes.size() - at, size_t{1} + bytes[at] % 32});
    const size_t used = parser.feed(bytes.subspan(at, size));
    check(used <= size);
    if (used == 0) return;
    at += used;
  }
}

void fuzz_frames(ByteSpan bytes) {
  FrameDecoder decoder(kMaxRequestBytes);
  size_t at = 0;
  while (at < bytes.size() && decoder.status().ok()) {
    const size_t used = decoder.feed(bytes.subspan(at));
    check(used <= bytes.size() - at);
    at += used;
    if (decoder.ready()) {
      check(decoder.take().payload.size() <= kMaxRequestBytes);
    } else {
      check(used > 0);
    }
  }
}

void fuzz_handshake(ByteSpan bytes, bool initiator, bool secret) {
  Handshake handshake = initiator ? Handshake::initiator(config(1, secret)) : Handshake::acceptor(config(1, secret));
  handshake.take_output();
  feed_in_pieces(handshake, bytes);
  // Nobody without the secret gets through.
  if (secret) check(!handshake.over() || !handshake.status().ok());
  check(handshake.agreement().peer_name.size() <= kMaxNameBytes);
}

void fuzz_messages(ByteSpan bytes) {
  // Frames' payloads lie in memory of their own, aligned.
  const std::vector<uint8_t> payload(bytes.begin(), bytes.end());
  if (const auto record = decode_record(payload); record.ok()) {
    check(record->rails.size() <= kMaxRails);
    check(decode_record(ByteSpan(encode_record(1, *record)).subspan(kFrameHeaderBytes)).ok());
  }
  if (const auto notification = decode_notification(payload); notification.ok())
    check(notification->message.size() <= kMaxNotificationBytes &&
          notification->name.size() <= kMaxNotificationNameBytes);
  (void)decode_outcome(payload);
  (void)decode_first_region(payload);
  (void)decode_goodbye(payload);
}

void fuzz_address(ByteSpan bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const auto address = parse_address(text);
  if (!address.ok()) return;
  const auto again = parse_address(address->to_string());
  check(again.ok() && again->host == address->host && again->port == address->port &&
        again->has_port == address->has_port);
}

void fuzz_http(ByteSpan bytes) {
  metadata::HttpResponse response(1024);
  const std::string text(bytes.begin(), bytes.end());
  for (size_t at = 0; at < text.size();) {
    const size_t size = 1 + static_cast<uint8_t>(text[at]) % 32;
    if (!response.feed(std::string_view(text).substr(at, size)).ok()) break;
    at += size;
  }
  (void)response.end();
  check(response.body().size() <= 1024);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteSpan bytes(data + 1, size - 1);
  switch (data[0] % 8) {
    case 0:
      fuzz_frames(bytes);
      break;
    case 1:
      fuzz_handshake(bytes, false, false);
      break;
    case 2:
      fuzz_handshake(bytes, true, false);
      break;
    case 3:
      fuzz_handshake(bytes, false, true);
      break;
    case 4:
      fuzz_handshake(bytes, true, true);
      break;
    case 5:
      fuzz_messages(bytes);
      break;
    case 6:
      fuzz_address(bytes);
      break;
    case 7:
      fuzz_http(bytes);
      break;
  }
  return 0;
}
