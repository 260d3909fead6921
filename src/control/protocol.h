// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the control protocol, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidewire::control {

constexpr uint32_t kProtocolVersion = 2;  // talks to kProtocolVersion - 1 as well
// Bits that a side understands; both use the intersection.
constexpr uint64_t kPushedRecord = 1;  // the acceptor's record follows a control hello unasked, under request 0
constexpr uint64_t kPushedRequest = 0;
constexpr uint64_t kFeatures = kPushedRecord;

constexpr uint32_t kMaxNotificationBytes = 65'536;
constexpr uint32_t kMaxNotificationNameBytes = 4'096;
constexpr uint32_t kMaxNameBytes = 512;      // advertised names: 253 characters of DNS, a port, scope ids
constexpr uint32_t kMaxReasonBytes = 2'048;  // error texts that travel
constexpr uint32_t kMaxRails = 1'024;

constexpr uint32_t kMaxFrameBytes = 16u << 20;     // answers that we asked for
constexpr uint32_t kMaxRequestBytes = 128u << 10;  // what a peer may ask: a notification of full size and its frame
constexpr uint32_t kMaxHelloBytes = 4u << 10;      // all that somebody unknown can make us hold

constexpr size_t kMaxAccepted = 4'096;          // accepted connections, of which
constexpr size_t kMaxInHandshake = 1'024;       // may still be unknown; the oldest makes room
constexpr size_t kMaxAnswerBacklog = 1u << 20;  // bytes of answers that a peer leaves unread before we stop reading it

}  // namespace tidewire::control
