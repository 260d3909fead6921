// SPDX-License-Identifier: Apache-2.0
//
// The messages that follow the hello, as plain structs, to and from verified FlatBuffers tables (control/messages.fbs).
// decode_* never trusts its bytes: kProtocol says which message was malformed. Texts are bounded by control/protocol.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/frame.h"
#include "transport/peer_record.h"

namespace tidewire::control {

using Bytes = std::vector<uint8_t>;
using ByteSpan = std::span<const uint8_t>;

struct NotificationMessage {
  uint64_t stream = 0;
  uint64_t sequence = 0;
  std::string name;
  std::string message;
};

struct RegionMessage {
  uint64_t address = 0;
  uint64_t length = 0;
};

// Whole frames, ready to send.
Bytes encode_record(uint64_t request, const PeerRecord& record);
Bytes encode_notification(uint64_t request, const NotificationMessage& notification);
// kProbeAnswer, kNotificationAnswer and kError carry a Status.
Bytes encode_outcome(FrameType type, uint64_t request, const Status& outcome);
Bytes encode_first_region(uint64_t request, const RegionMessage& region);
Bytes encode_goodbye(bool closing);

Result<PeerRecord> decode_record(ByteSpan payload);
Result<NotificationMessage> decode_notification(ByteSpan payload);
// The Status that travelled, or kProtocol.
Status decode_outcome(ByteSpan payload);
Result<RegionMessage> decode_first_region(ByteSpan payload);
// Whether the sender ends.
Result<bool> decode_goodbye(ByteSpan payload);

// A code from the wire; unknown numbers become kInternal.
Code code_from_wire(uint32_t code);
// At most `limit` bytes of a text for the wire, or of a foreign text for a message: control characters become '?'.
std::string bounded_text(std::string_view text, size_t limit);

}  // namespace tidewire::control
