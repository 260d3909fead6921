// SPDX-License-Identifier: Apache-2.0
//
// The other end of a lane, played by a test byte by byte.
#pragma once

#include <poll.h>

#include "tcp_pair.h"
#include "transport/tcp/wire.h"

namespace tidewire::transport::tcp {

inline std::vector<uint8_t> frame_of(wire::Header header, const std::vector<uint8_t>& body = {},
                                     const std::vector<uint8_t>& payload = {}) {
  header.body_check = wire::body_checksum(body.data(), body.size());
  std::vector<uint8_t> bytes(wire::kHeaderBytes);
  wire::encode(header, bytes.data());
  bytes.insert(bytes.end(), body.begin(), body.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}
inline std::vector<uint8_t> table_of(const std::vector<std::pair<uint64_t, uint64_t>>& pieces) {
  std::vector<uint8_t> table(pieces.size() * wire::kPieceBytes);
  for (size_t i = 0; i < pieces.size(); ++i) {
    wire::store(table.data() + i * wire::kPieceBytes, pieces[i].first);
    wire::store(table.data() + i * wire::kPieceBytes + 8, pieces[i].second);
  }
  return table;
}
inline std::vector<uint8_t> write_frame(uint64_t id, uint64_t address, const std::vector<uint8_t>& payload) {
  wire::Header header;
  header.type = wire::Type::kWrite;
  header.id = id;
  header.count = 1;
  header.payload_bytes = payload.size();
  return frame_of(header, table_of({{address, payload.size()}}), payload);
}
inline std::vector<uint8_t> simple_frame(wire::Type type, uint64_t id) {
  wire::Header header;
  header.type = type;
  header.id = id;
  return frame_of(header);
}

class RawPeer {
 public:
  explicit RawPeer(UniqueFd socket) : fd_(std::move(socket)) { fcntl(fd_.get(), F_SETFL, 0); }
  // False when the other side closed.
  bool send(const std::vector<uint8_t>& bytes, size_t from = 0) {
    while (from < bytes.size()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data() + from, bytes.size() - from, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      from += static_cast<size_t>(sent);
    }
    return true;
  }
  // False at the end of the stream.
  bool receive(void* bytes, size_t size) {
    timeval limit{60, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return size == 0 || recv(fd_.get(), bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  bool receive_header(wire::Header& header, std::string* text = nullptr) {
    uint8_t bytes[wire::kHeaderBytes];
    if (!receive(bytes, sizeof(bytes)) || !wire::decode(bytes, header).ok()) return false;
    std::string body(header.body_bytes(), 0);
    if (!receive(body.data(), body.size())) return false;
    if (text) *text = body;
    return true;
  }
  // Reads until the other side closes; false at the hard stop.
  bool wait_closed() {
    uint8_t bytes[4096];
    timeval limit{60, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    for (;;) {
      const ssize_t got = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
      if (got < 0) return false;
    }
  }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A raw initiator on a lane of the pair's target.
inline RawPeer raw_initiator(TcpPair& pair, uint64_t channel, InstanceId instance = {}) {
  auto [client, server] = connected_pair();
  pair.target.transport->accept(std::move(server), instance, "raw", channel, 0);
  return RawPeer(std::move(client));
}

}  // namespace tidewire::transport::tcp
