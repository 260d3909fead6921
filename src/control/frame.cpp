// SPDX-License-Identifier: Apache-2.0
#include "control/frame.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tidewire::control {
namespace {

constexpr std::string_view kMagic = "TWC1";
constexpr uint8_t kHeaderVersion = 1;
constexpr size_t kTellingBytes = 10;  // enough to tell strangers apart

template <typename T>
void put(uint8_t* to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}

template <typename T>
T get(const uint8_t* from) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(from[i]) << (8 * i);
  return value;
}

bool is_http(std::string_view text) {
  for (std::string_view method : {"GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI", "HTTP", "PRI "})
    if (text.substr(0, 4) == method) return true;
  return false;
}

// Mooncake's handshake: a length of 8 bytes, little-endian, then JSON, perhaps with a byte that tells the kind of
// message before it.
bool is_mooncake(const uint8_t* bytes) {
  const auto length = get<uint64_t>(bytes);
  return length >= 2 && length <= (64u << 20) && (bytes[8] == '{' || bytes[9] == '{');
}

}  // namespace

std::vector<uint8_t> encode_frame(FrameType type, uint64_t request, std::span<const uint8_t> payload) {
  std::vector<uint8_t> out(kFrameHeaderBytes + payload.size());
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  out[4] = kHeaderVersion;
  out[5] = static_cast<uint8_t>(type);
  put<uint16_t>(&out[6], 0);
  put<uint64_t>(&out[8], request);
  put<uint32_t>(&out[16], static_cast<uint32_t>(payload.size()));
  if (!payload.empty()) std::memcpy(&out[kFrameHeaderBytes], payload.data(), payload.size());
  return out;
}

size_t FrameDecoder::wanted() const {
  if (ready_ || !status_.ok()) return 0;
  if (header_bytes_ < kFrameHeaderBytes) return kFrameHeaderBytes - header_bytes_;
  return length_ - frame_.payload.size();
}

size_t FrameDecoder::feed(std::span<const uint8_t> bytes) {
  size_t used = 0;
  if (header_bytes_ < kFrameHeaderBytes) {
    used = std::min(bytes.size(), wanted());
    if (used == 0) return 0;
    std::memcpy(&header_[header_bytes_], bytes.data(), used);
    header_bytes_ += used;
    const size_t magic = std::min(header_bytes_, kMagic.size());
    if (std::memcmp(header_.data(), kMagic.data(), magic) != 0) {
      reject_stranger();
      return used;
    }
    if (header_bytes_ < kFrameHeaderBytes) return used;
    parse_header();
  }
  const size_t body = std::min(bytes.size() - used, wanted());
  if (body > 0) {
    const auto part = bytes.subspan(used, body);
    frame_.payload.insert(frame_.payload.end(), part.begin(), part.end());
    used += body;
  }
  if (status_.ok() && header_bytes_ == kFrameHeaderBytes && frame_.payload.size() == length_) ready_ = true;
  return used;
}

void FrameDecoder::parse_header() {
  if (header_[4] != kHeaderVersion) {
    status_ = Status::error(Code::kProtocol, "frame header of version {}, this side knows version {}", header_[4],
                            kHeaderVersion);
    return;
  }
  if (get<uint16_t>(&header_[6]) != 0) {
    status_ = Status::error(Code::kProtocol, "frame with unknown flags {:#x}", get<uint16_t>(&header_[6]));
    return;
  }
  frame_.type = static_cast<FrameType>(header_[5]);
  frame_.request = get<uint64_t>(&header_[8]);
  length_ = get<uint32_t>(&header_[16]);
  if (length_ > max_payload_)
    status_ = Status::error(Code::kProtocol, "frame of type {} with {} bytes, at most {} are allowed here", header_[5],
                            length_, max_payload_);
}

void FrameDecoder::reject_stranger() {
  const std::string_view text(reinterpret_cast<const char*>(header_.data()), header_bytes_);
  if (header_bytes_ >= 4 && is_http(text)) {
    status_ = Status(Code::kProtocol, "the other side speaks HTTP; this is Tidewire's control port");
  } else if (header_bytes_ >= 3 && header_[0] == 0x16 && header_[1] == 0x03) {
    status_ = Status(Code::kProtocol, "the other side speaks TLS; this is Tidewire's control port, which takes none");
  } else if (header_bytes_ >= kTellingBytes) {
    status_ = is_mooncake(header_.data())
                  ? Status(Code::kProtocol,
                           "the other side speaks Mooncake's handshake, which Tidewire can't serve: run Tidewire (or "
                           "Mooncake) on both sides")
                  : Status(Code::kProtocol, "the other side does not speak Tidewire's control protocol");
  }
}

Frame FrameDecoder::take() {
  Frame frame = std::move(frame_);
  frame_ = Frame{};
  header_bytes_ = 0;
  length_ = 0;
  ready_ = false;
  return frame;
}

}  // namespace tidewire::control
