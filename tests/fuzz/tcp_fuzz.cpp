// SPDX-License-Identifier: Apache-2.0
//
// Fuzzes what a TCP lane does with foreign bytes. The first byte chooses: raw bytes as they are, or frames built from
// the input with correct checksums (which a fuzzer would never guess), so that what lies behind them is reached. The
// parser gets them through a socket in pieces of varying size, and places payloads into a region with canaries on both
// sides.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "memory/region.h"
#include "transport/tcp/frame_receiver.h"

namespace tidewire::transport::tcp {
namespace {

constexpr size_t kRegion = 64 << 10;
constexpr size_t kCanary = 4 << 10;

void check(bool condition) {
  if (!condition) std::abort();
}

struct Memory {
  Memory() : bytes(kRegion + 2 * kCanary, 0xEE) {
    check(regions.add(address(), kRegion, "cpu:0", Permission::kReadWrite).ok());
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()) + kCanary; }
  void check_canaries() const {
    for (size_t i = 0; i < kCanary; ++i) check(bytes[i] == 0xEE && bytes[kCanary + kRegion + i] == 0xEE);
  }
  std::vector<uint8_t> bytes;
  RegionTable regions;
};
Memory& memory() {
  static Memory& memory = *new Memory;
  return memory;
}

// Does what a target does with the ranges of a frame.
class Client : public FrameReceiver::Client {
 public:
  Status on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) override {
    hold_.release();
    check(header.body_bytes() <= wire::kMaxPieces * wire::kPieceBytes);
    if (header.type != wire::Type::kWrite && header.type != wire::Type::kRead) return {};
    const PieceView pieces = PieceView::of_table(body, header.count);
    uint64_t sum = 0;
    for (size_t i = 0; i < pieces.count; ++i) {
      sum += pieces.length(i);
      if (!memory().regions.use(pieces.address(i), pieces.length(i), Access::kRemoteWrite, hold_).ok()) {
        hold_.release();
        return {};
      }
    }
    check(sum == header.payload_bytes);
    if (header.type == wire::Type::kRead) return {};
    cursor_ = MemoryCursor(pieces, hold_, header.payload_bytes);
    *sink = &cursor_;
    return {};
  }
  Status on_payload_end(const Status& placed) override {
    check(placed.ok());
    hold_.release();
    return {};
  }

 private:
  RangeHold hold_;
  MemoryCursor cursor_;
};

// Takes numbers off the input; zeros at its end.
struct Input {
  const uint8_t* at;
  const uint8_t* end;
  template <typename Number>
  Number take() {
    Number number = 0;
    const size_t have = std::min<size_t>(sizeof(number), static_cast<size_t>(end - at));
    std::memcpy(&number, at, have);
    at += have;
    return number;
  }
  bool empty() const { return at == end; }
};

std::vector<uint8_t> build_frames(Input input) {
  std::vector<uint8_t> stream;
  while (!input.empty() && stream.size() < 256 << 10) {
    wire::Header header;
    const uint8_t shape = input.take<uint8_t>();
    header.type = static_cast<wire::Type>(input.take<uint8_t>());
    header.count = input.take<uint8_t>();
    header.id = input.take<uint16_t>();
    std::vector<uint8_t> body;
    uint64_t sum = 0;
    if (header.type == wire::Type::kWrite || header.type == wire::Type::kRead) {
      for (uint32_t i = 0; i < header.count; ++i) {
        uint64_t address = memory().address() + input.take<uint16_t>(), length = input.take<uint16_t>();
        if (shape & 1) length <<= 40;
        if (shape & 2) address = input.take<uint64_t>();
        body.resize(body.size() + wire::kPieceBytes);
        wire::store(body.data() + body.size() - 16, address);
        wire::store(body.data() + body.size() - 8, length);
        sum += length;
      }
      header.payload_bytes = shape & 4 ? input.take<uint32_t>() : sum;
    } else if (header.type == wire::Type::kAck) {
      body.assign(header.count, 'x');
      header.code = input.take<uint32_t>();
    } else {
      header.payload_bytes = input.take<uint16_t>();
    }
    header.body_check = wire::body_checksum(body.data(), body.size());
    const size_t before = stream.size();
    stream.resize(before + wire::kHeaderBytes);
    wire::encode(header, stream.data() + before);
    stream.insert(stream.end(), body.begin(), body.end());
    stream.insert(stream.end(), std::min<uint64_t>(header.stream_bytes(), 128 << 10), static_cast<uint8_t>(shape));
  }
  return stream;
}

}  // namespace
}  // namespace tidewire::transport::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidewire::transport::tcp;
  if (size < 2) return 0;
  const std::vector<uint8_t> stream =
      data[0] & 1 ? build_frames({data + 2, data + size}) : std::vector<uint8_t>(data + 2, data + size);
  const size_t chunk = 1 + (data[1] & 0x80 ? data[1] * 997u : data[1]);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) != 0) return 0;
  Client client;
  FrameReceiver receiver(client);
  bool ended = false;
  for (size_t sent = 0; sent < stream.size() && !ended;) {
    const ssize_t now = send(sockets[0], stream.data() + sent, std::min(chunk, stream.size() - sent), MSG_NOSIGNAL);
    if (now > 0) sent += static_cast<size_t>(now);
    bool progress = false;
    tidewire::Status why;
    ended = receiver.run(sockets[1], 1 << 20, progress, why) == FrameReceiver::Outcome::kEnded;
    check(!ended || !why.ok());
  }
  close(sockets[0]);
  close(sockets[1]);
  memory().check_canaries();
  return 0;
}
