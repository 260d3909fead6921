// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstdlib>
#include <cstring>

#include "transport/shm/wire.h"

namespace tidewire::transport::shm {

void random_bytes(void* out, size_t n) {
  // Up to 256 bytes never fall short (getrandom(2)).
  if (getrandom(out, n, 0) != static_cast<ssize_t>(n)) std::abort();
}

void make_proof(const std::string& secret, Role role, const HandshakeFacts& facts, uint8_t out[32]) {
  std::memset(out, 0, 32);
  if (secret.empty()) return;
  std::string message = "tidewire shm";
  message.push_back(static_cast<char>(role));
  message.push_back(static_cast<char>(kVersion));
  message.append(reinterpret_cast<const char*>(facts.initiator.data()), facts.initiator.size());
  message.append(reinterpret_cast<const char*>(facts.target.data()), facts.target.size());
  message.append(reinterpret_cast<const char*>(facts.initiator_nonce), sizeof facts.initiator_nonce);
  message.append(reinterpret_cast<const char*>(facts.target_nonce), sizeof facts.target_nonce);
  unsigned length = 32;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const uint8_t*>(message.data()),
       message.size(), out, &length);
}

bool proof_matches(const std::string& secret, Role role, const HandshakeFacts& facts, const uint8_t proof[32]) {
  uint8_t expected[32];
  make_proof(secret, role, facts, expected);
  return CRYPTO_memcmp(expected, proof, sizeof expected) == 0;
}

}  // namespace tidewire::transport::shm
