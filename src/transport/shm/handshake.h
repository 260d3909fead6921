// SPDX-License-Identifier: Apache-2.0
//
// The proof of the cluster secret on same-host connections: HMAC-SHA-256 over role, version, both instances and both
// nonces, so that neither a recorded proof nor one of the other direction is worth anything.
#pragma once

#include <cstdint>
#include <string>

#include "transport/peer_record.h"

namespace tidewire::transport::shm {

struct HandshakeFacts {
  InstanceId initiator{};
  InstanceId target{};
  uint8_t initiator_nonce[32] = {};
  uint8_t target_nonce[32] = {};
};

enum class Role : uint8_t { kInitiator = 1, kTarget = 2 };

void random_bytes(void* out, size_t n);
// 32 bytes; all zero without a secret.
void make_proof(const std::string& secret, Role role, const HandshakeFacts& facts, uint8_t out[32]);
// In constant time.
bool proof_matches(const std::string& secret, Role role, const HandshakeFacts& facts, const uint8_t proof[32]);

}  // namespace tidewire::transport::shm
