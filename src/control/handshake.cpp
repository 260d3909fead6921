// SPDX-License-Identifier: Apache-2.0
#include "control/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdlib>

#include "control/messages.h"
#include "control/wire.h"

namespace tidewire::control {
namespace {

// The labels keep the two directions' proofs apart, and both from other uses of the secret.
constexpr const char* kFromInitiator = "tidewire control hello: initiator";
constexpr const char* kFromAcceptor = "tidewire control hello: acceptor";

uint32_t lowest(uint32_t version) {
  return version > 1 ? version - 1 : 1;
}

template <size_t kSize>
void append(std::vector<uint8_t>& out, const std::array<uint8_t, kSize>& bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append(std::vector<uint8_t>& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

constexpr const char* kRemedy = "set the same TIDEWIRE_SECRET_FILE on both sides";

}  // namespace

Nonce make_nonce() {
  Nonce nonce;
  // Up to 256 bytes never block or fall short once the system's source is initialised (getrandom(2)).
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) std::abort();
  return nonce;
}

Handshake::Handshake(HandshakeConfig config, Step step) : config_(std::move(config)), step_(step) {}

Handshake Handshake::initiator(HandshakeConfig config) {
  Handshake handshake(std::move(config), Step::kAwaitAnswer);
  handshake.agreement_.role = handshake.config_.role;
  handshake.agreement_.channel = handshake.config_.channel;
  handshake.agreement_.rail = handshake.config_.rail;
  handshake.send_hello();
  return handshake;
}

Handshake Handshake::acceptor(HandshakeConfig config) {
  return Handshake(std::move(config), Step::kAwaitHello);
}

size_t Handshake::feed(std::span<const uint8_t> bytes) {
  size_t used = 0;
  while (!over_ && used < bytes.size()) {
    used += decoder_.feed(bytes.subspan(used));
    if (!decoder_.status().ok()) {
      finish(decoder_.status());
    } else if (decoder_.ready()) {
      on_frame(decoder_.take());
    }
  }
  return used;
}

void Handshake::on_frame(const Frame& frame) {
  switch (step_) {
    case Step::kAwaitHello:
      if (frame.type == FrameType::kHello) return on_hello(frame);
      break;
    case Step::kAwaitAnswer:
      if (frame.type == FrameType::kHelloAnswer) return on_answer(frame);
      break;
    case Step::kAwaitConfirm:
      if (frame.type == FrameType::kConfirm) return on_confirm(frame);
      break;
  }
  finish(Status::error(Code::kProtocol, "a frame of type {} in the middle of the hello", static_cast<int>(frame.type)));
}

void Handshake::on_hello(const Frame& frame) {
  const auto* hello = wire::verified<fb::Hello>(frame.payload);
  const bool valid = hello != nullptr && wire::read_id(hello->instance(), &agreement_.peer) &&
                     wire::read_array(hello->nonce(), &peer_nonce_) &&
                     wire::read_text(hello->name(), kMaxNameBytes, &agreement_.peer_name) &&
                     (hello->expected() == nullptr || wire::read_id(hello->expected(), &expected_by_peer_)) &&
                     hello->role() >= static_cast<uint8_t>(Role::kControl) &&
                     hello->role() <= static_cast<uint8_t>(Role::kStore);
  if (!valid) return finish(wire::malformed("hello"));
  agreement_.peer_name = bounded_text(agreement_.peer_name, kMaxNameBytes);
  agreement_.role = static_cast<Role>(hello->role());
  agreement_.channel = hello->channel();
  agreement_.rail = hello->rail();
  agreement_.features = hello->features() & config_.features;
  peer_version_min_ = hello->version_min();
  peer_version_max_ = hello->version_max();
  agreement_.version = std::min(config_.version, peer_version_max_);

  const Status verdict = judge_hello(hello->has_secret());
  send_answer(verdict);
  if (!verdict.ok()) return finish(verdict);
  if (config_.secret.empty()) return finish(Status());
  step_ = Step::kAwaitConfirm;
}

Status Handshake::judge_hello(bool peer_has_secret) {
  if (agreement_.version < std::max(lowest(config_.version), peer_version_min_))
    return Status::error(
        Code::kProtocol, "{} speaks protocol versions {} to {}, {} speaks {} to {}: upgrade the older one",
        peer_label(), peer_version_min_, peer_version_max_, config_.name, lowest(config_.version), config_.version);
  if ((agreement_.role == Role::kStore) != config_.store_port)
    return config_.store_port
               ? Status::error(Code::kUnsupported,
                               "{} is the port of a store's master, an engine was looked for: check the address",
                               config_.name)
               : Status::error(Code::kUnsupported,
                               "{} is the port of an engine, a store's master was looked for: check the address",
                               config_.name);
  if (peer_has_secret && config_.secret.empty())
    return Status::error(Code::kUnauthenticated, "{} has no cluster secret, {} has one: {}", config_.name, peer_label(),
                         kRemedy);
  if (!peer_has_secret && !config_.secret.empty())
    return Status::error(Code::kUnauthenticated, "{} has no cluster secret, {} has one: {}", peer_label(), config_.name,
                         kRemedy);
  if (expected_by_peer_ != InstanceId{} && expected_by_peer_ != config_.instance)
    return Status::error(Code::kPeerGone, "{} is instance {}, not {}: it was started again", config_.name,
                         to_string(config_.instance), to_string(expected_by_peer_));
  return Status();
}

void Handshake::send_hello() {
  flatbuffers::FlatBufferBuilder builder;
  auto instance = builder.CreateVector(config_.instance.data(), config_.instance.size());
  auto expected = builder.CreateVector(config_.expected.data(), config_.expected.size());
  auto nonce = builder.CreateVector(config_.nonce.data(), config_.nonce.size());
  auto name = builder.CreateString(bounded_text(config_.name, kMaxNameBytes));
  output_ = wire::finish(builder,
                         fb::CreateHello(builder, lowest(config_.version), config_.version, config_.features,
                                         static_cast<uint8_t>(config_.role), instance, expected, nonce,
                                         !config_.secret.empty(), name, config_.channel, config_.rail),
                         FrameType::kHello, 0);
}

void Handshake::send_answer(const Status& verdict) {
  // With a secret on both sides every answer is proven, also "another instance lives here".
  const bool prove = !config_.secret.empty() && (verdict.ok() || verdict.code() == Code::kPeerGone);
  flatbuffers::FlatBufferBuilder builder;
  auto reason = builder.CreateString(bounded_text(verdict.message(), kMaxReasonBytes));
  auto instance = builder.CreateVector(config_.instance.data(), config_.instance.size());
  auto nonce = builder.CreateVector(config_.nonce.data(), config_.nonce.size());
  auto name = builder.CreateString(bounded_text(config_.name, kMaxNameBytes));
  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> proof_bytes;
  if (prove) {
    const Proof bytes = proof(kFromAcceptor);
    proof_bytes = builder.CreateVector(bytes.data(), bytes.size());
  }
  output_ =
      wire::finish(builder,
                   fb::CreateHelloAnswer(builder, static_cast<uint32_t>(verdict.code()), reason, agreement_.version,
                                         lowest(config_.version), config_.version, agreement_.features, instance, nonce,
                                         !config_.secret.empty(), name, proof_bytes),
                   FrameType::kHelloAnswer, 0);
}

void Handshake::on_answer(const Frame& frame) {
  const auto* answer = wire::verified<fb::HelloAnswer>(frame.payload);
  std::string reason;
  Proof theirs{};
  const bool has_proof = answer != nullptr && answer->proof() != nullptr;
  const bool valid = answer != nullptr && wire::read_id(answer->instance(), &agreement_.peer) &&
                     wire::read_array(answer->nonce(), &peer_nonce_) &&
                     wire::read_text(answer->name(), kMaxNameBytes, &agreement_.peer_name) &&
                     wire::read_text(answer->reason(), kMaxReasonBytes, &reason) &&
                     (!has_proof || wire::read_array(answer->proof(), &theirs));
  if (!valid || (answer->features() & ~config_.features) != 0) return finish(wire::malformed("answer to the hello"));
  agreement_.peer_name = bounded_text(agreement_.peer_name, kMaxNameBytes);
  agreement_.version = answer->version();
  agreement_.features = answer->features();
  peer_version_min_ = answer->version_min();
  peer_version_max_ = answer->version_max();
  const Status verdict(code_from_wire(answer->code()), bounded_text(reason, kMaxReasonBytes));

  if (agreement_.version < lowest(config_.version) || agreement_.version > config_.version ||
      verdict.code() == Code::kProtocol)
    return finish(Status::error(
        Code::kProtocol, "{} speaks protocol versions {} to {}, {} speaks {} to {}: upgrade the older one",
        peer_label(), peer_version_min_, peer_version_max_, config_.name, lowest(config_.version), config_.version));
  // Secrets don't matter to what was reached by mistake: it refuses before it proves anything.
  if (verdict.code() == Code::kUnsupported) return finish(verdict);
  if (answer->has_secret() != !config_.secret.empty())
    return finish(config_.secret.empty()
                      ? Status::error(Code::kUnauthenticated, "{} has no cluster secret, {} has one: {}", config_.name,
                                      peer_label(), kRemedy)
                      : Status::error(Code::kUnauthenticated, "{} has no cluster secret, {} has one: {}", peer_label(),
                                      config_.name, kRemedy));
  if (!config_.secret.empty() && !(has_proof && proven(theirs, kFromAcceptor))) {
    const Status differs = Status::error(Code::kUnauthenticated, "the cluster secrets of {} and {} differ: {}",
                                         peer_label(), config_.name, kRemedy);
    send_confirm(differs);
    return finish(differs);
  }
  if (!verdict.ok()) return finish(verdict);
  // An acceptor that did not check is not believed either.
  if (config_.expected != InstanceId{} && config_.expected != agreement_.peer)
    return finish(Status::error(Code::kPeerGone, "{} is instance {}, not {}: it was started again", peer_label(),
                                to_string(agreement_.peer), to_string(config_.expected)));
  if (!config_.secret.empty()) send_confirm(Status());
  finish(Status());
}

void Handshake::send_confirm(const Status& verdict) {
  flatbuffers::FlatBufferBuilder builder;
  auto reason = builder.CreateString(bounded_text(verdict.message(), kMaxReasonBytes));
  flatbuffers::Offset<flatbuffers::Vector<uint8_t>> proof_bytes;
  if (verdict.ok()) {
    const Proof bytes = proof(kFromInitiator);
    proof_bytes = builder.CreateVector(bytes.data(), bytes.size());
  }
  output_ =
      wire::finish(builder, fb::CreateConfirm(builder, static_cast<uint32_t>(verdict.code()), reason, proof_bytes),
                   FrameType::kConfirm, 0);
}

void Handshake::on_confirm(const Frame& frame) {
  const auto* confirm = wire::verified<fb::Confirm>(frame.payload);
  if (confirm == nullptr) return finish(wire::malformed("confirmation"));
  Proof theirs{};
  if (confirm->code() == 0 && confirm->proof() != nullptr && wire::read_array(confirm->proof(), &theirs) &&
      proven(theirs, kFromInitiator))
    return finish(Status());
  finish(Status::error(Code::kUnauthenticated, "the cluster secrets of {} and {} differ: {}", peer_label(),
                       config_.name, kRemedy));
}

Proof Handshake::proof(const char* direction) const {
  const bool initiator = step_ == Step::kAwaitAnswer;
  std::vector<uint8_t> text;
  for (const char* c = direction; *c != 0; ++c) text.push_back(static_cast<uint8_t>(*c));
  text.push_back(0);
  append(text, initiator ? config_.nonce : peer_nonce_);
  append(text, initiator ? peer_nonce_ : config_.nonce);
  append(text, initiator ? config_.instance : agreement_.peer);
  append(text, initiator ? agreement_.peer : config_.instance);
  append(text, static_cast<uint64_t>(agreement_.role));
  append(text, agreement_.version);
  // What was offered, so that nobody in between can talk the two down to an older version.
  append(text, initiator ? lowest(config_.version) : peer_version_min_);
  append(text, initiator ? config_.version : peer_version_max_);
  append(text, initiator ? peer_version_min_ : lowest(config_.version));
  append(text, initiator ? peer_version_max_ : config_.version);
  append(text, agreement_.features);
  append(text, agreement_.channel);
  append(text, agreement_.rail);
  Proof out{};
  unsigned int length = 0;
  HMAC(EVP_sha256(), config_.secret.data(), static_cast<int>(config_.secret.size()), text.data(), text.size(),
       out.data(), &length);
  return out;
}

bool Handshake::proven(const Proof& theirs, const char* direction) const {
  const Proof ours = proof(direction);
  return CRYPTO_memcmp(ours.data(), theirs.data(), ours.size()) == 0;
}

std::string Handshake::peer_label() const {
  return agreement_.peer_name.empty() ? "the other side" : agreement_.peer_name;
}

void Handshake::finish(Status status) {
  status_ = std::move(status);
  over_ = true;
}

}  // namespace tidewire::control
