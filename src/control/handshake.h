// SPDX-License-Identifier: Apache-2.0
//
// Handshake: what two sides of a new connection say to each other before anything else, as a state machine without I/O:
// bytes in, bytes and a verdict out. The same class plays both sides, in the event loop and in the simulator.
//
//   initiator                                             acceptor
//   Hello: versions, features, role, ids, nonce     →
//                                                   ←     HelloAnswer: verdict, version, id, nonce [, proof]
//   [Confirm: proof]                                →     only with a cluster secret
//
// A proof is HMAC-SHA-256 under the cluster secret over a label that names the direction (so that nothing can be
// reflected), both nonces, both instance ids, role, versions, features, channel and rail. Comparison takes constant
// time. When one side has a secret and the other has none, both learn which; when the secrets differ, both learn that.
// Without a secret it takes one round trip. After a control hello in which both have the feature kPushedRecord, the acceptor's record follows unasked.
//
// Versions: each side offers [version - 1, version]; the highest that both offer is taken, otherwise the refusal
// (kProtocol) names both.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/frame.h"
#include "control/protocol.h"
#include "transport/peer_record.h"

namespace tidewire::control {

// What a connection is for. An engine's port takes kControl and kData, the port of a store's master kStore alone; a
// hello for the other kind is refused with kUnsupported, so that both sides learn what was reached.
enum class Role : uint8_t { kControl = 1, kData = 2, kStore = 3 };

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

struct HandshakeConfig {
  InstanceId instance{};
  std::string name;    // advertised, shown in the other side's messages
  std::string secret;  // empty = none
  Nonce nonce{};       // fresh and random for each handshake
  uint32_t version = kProtocolVersion;
  uint64_t features = kFeatures;
  // Of the acceptor alone.
  bool store_port = false;  // of a store's master instead of an engine
  // Of the initiator alone.
  Role role = Role::kControl;
  InstanceId expected{};  // zero = any
  uint64_t channel = 0;
  uint32_t rail = 0;
};

// What both sides know afterwards.
struct Agreement {
  uint32_t version = 0;
  uint64_t features = 0;
  Role role = Role::kControl;
  InstanceId peer{};
  std::string peer_name;
  uint64_t channel = 0;
  uint32_t rail = 0;
};

class Handshake {
 public:
  static Handshake initiator(HandshakeConfig config);
  static Handshake acceptor(HandshakeConfig config);

  // Bytes to read next, never beyond the hello. 0 when the handshake is over.
  size_t wanted() const { return over_ ? 0 : decoder_.wanted(); }
  // Takes at most wanted() of the bytes and returns how many.
  size_t feed(std::span<const uint8_t> bytes);
  // What is to be sent now, also after a failure (it tells the other side why). Empties it.
  std::vector<uint8_t> take_output() { return std::exchange(output_, {}); }

  bool over() const { return over_; }
  // OK once over() means agreed. kPeerGone: another instance than the expected one answered. kUnsupported: another kind
  // of port.
  const Status& status() const { return status_; }
  const Agreement& agreement() const { return agreement_; }
  // The acceptor's instance as far as known (with a secret: proven); zero before.
  const InstanceId& seen() const { return agreement_.peer; }

 private:
  enum class Step { kAwaitHello, kAwaitAnswer, kAwaitConfirm };
  Handshake(HandshakeConfig config, Step step);

  void on_frame(const Frame& frame);
  void on_hello(const Frame& frame);
  void on_answer(const Frame& frame);
  void on_confirm(const Frame& frame);
  void send_hello();
  void send_answer(const Status& verdict);
  void send_confirm(const Status& verdict);
  Status judge_hello(bool peer_has_secret);
  void finish(Status status);
  Proof proof(const char* direction) const;
  bool proven(const Proof& theirs, const char* direction) const;
  std::string peer_label() const;

  HandshakeConfig config_;
  Step step_;
  FrameDecoder decoder_{kMaxHelloBytes};
  std::vector<uint8_t> output_;
  bool over_ = false;
  Status status_;
  Agreement agreement_;
  Nonce peer_nonce_{};
  InstanceId expected_by_peer_{};
  uint32_t peer_version_min_ = 0, peer_version_max_ = 0;
};

// 32 bytes from the system's random source.
Nonce make_nonce();

}  // namespace tidewire::control
