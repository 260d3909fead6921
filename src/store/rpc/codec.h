// SPDX-License-Identifier: Apache-2.0
//
// Messages of the store to and from control frames. The store's frames have types of their own, above those of
// control::FrameType:
//   kFirstStoreFrame + the index of the struct in Body, plus kAnswerBit in an answer.
// Structs are therefore only ever added to Body at its end. The payload is the struct's table of messages.fbs. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "control/frame.h"
#include "control/protocol.h"
#include "store/messages.h"

namespace tidewire::store {

constexpr uint8_t kFirstStoreFrame = 64;
constexpr uint8_t kAnswerBit = 128;
// Of one message. Ten thousand keys of a few hundred bytes fit; ten thousand of kMaxKeyBytes don't: whoever makes
// chunks minds this too.
constexpr uint32_t kMaxMessageBytes = control::kMaxFrameBytes;
// Segments that one put may prefer, and all puts of a message together.
constexpr uint32_t kMaxPreferred = 256;
constexpr uint32_t kMaxPreferredTogether = 160'000;

// "Get", for logs and errors.
const char* message_name(const Body& body);

// A whole frame, ready to send. Empty when the message is beyond what decode() takes at the other side: lists above
// kMaxBatch or of unequal length, places above kMaxReplicas, keys, groups and patterns above kMaxKeyBytes, names above
// control::kMaxNameBytes, the frame above kMaxMessageBytes.
std::vector<uint8_t> encode(const Message& message);

// Never trusts its bytes: kProtocol names the message that was malformed. kUnsupported: a message that this build
// doesn't know.
Result<Message> decode(const control::Frame& frame);

}  // namespace tidewire::store
