// SPDX-License-Identifier: Apache-2.0
//
// Replays the corpus of the control plane's fuzzer, and shaken copies of it. Writes the seeds that come from the
// encoders when asked:
//   CONTROL_CORPUS_WRITE=1 control_replay_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "control/handshake.h"
#include "control/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tidewire::control {
namespace {

const std::filesystem::path kCorpus = CONTROL_CORPUS;

std::map<std::string, Bytes> seeds() {
  std::map<std::string, Bytes> out;
  const auto add = [&](const std::string& name, uint8_t parser, ByteSpan bytes) {
    Bytes& seed = out[name];
    seed.push_back(parser);
    seed.insert(seed.end(), bytes.begin(), bytes.end());
  };
  const auto payload = [](const Bytes& frame) { return ByteSpan(frame).subspan(kFrameHeaderBytes); };
  HandshakeConfig one, two;
  one.instance.fill(1);
  two.instance.fill(2);
  one.name = two.name = "engine:1";
  for (const bool secret : {false, true}) {
    if (secret) one.secret = two.secret = "a secret of sixteen bytes";
    Handshake initiator = Handshake::initiator(one), acceptor = Handshake::acceptor(two);
    const Bytes hello = initiator.take_output();
    acceptor.feed(hello);
    add(secret ? "hello_secret" : "hello", secret ? 3 : 1, hello);
    add(secret ? "answer_secret" : "answer", secret ? 4 : 2, acceptor.take_output());
  }
  PeerRecord record;
  record.name = "engine:1";
  record.rails = {{"tcp", "eth0", "10.0.0.1:4000", 1}, {"tcp", "eth1", "[::1]:4000", 2}};
  Bytes frames;
  for (const auto& [name, frame] :
       std::map<std::string, Bytes>{{"record", encode_record(1, record)},
                                    {"notification", encode_notification(2, {1, 1, "name", "message"})},
                                    {"outcome", encode_outcome(FrameType::kError, 3, Status(Code::kBusy, "why"))},
                                    {"region", encode_first_region(4, {1, 2})},
                                    {"goodbye", encode_goodbye(true)}}) {
    add(name, 5, payload(frame));
    frames.insert(frames.end(), frame.begin(), frame.end());
  }
  add("frames", 0, frames);
  const auto text = [&](const std::string& name, uint8_t parser, const std::string& bytes) {
    add(name, parser, Bytes(bytes.begin(), bytes.end()));
  };
  text("stranger_http", 0, "GET / HTTP/1.1\r\n\r\n");
  text("stranger_mooncake", 0, std::string("\xff\0\0\0\0\0\0\0\1{\"buffers\":[]}", 23));
  text("address_v4", 6, "127.0.0.1:4000");
  text("address_v6", 6, "[fe80::1%eth0]:4000");
  text("address_name", 6, "node-1.example:80");
  text("http_length", 7, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  text("http_chunked", 7, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
  return out;
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

TEST(ControlFuzz, ReplaysTheCorpus) {
  if (std::getenv("CONTROL_CORPUS_WRITE") != nullptr) {
    for (const auto& [name, bytes] : seeds())
      std::ofstream(kCorpus / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    const Bytes bytes = read_file(entry.path());
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
    ++files;
  }
  EXPECT_GE(files, seeds().size());
}

TEST(ControlFuzz, SurvivesShakenSeeds) {
  std::mt19937 random(6);
  for (const auto& [name, seed] : seeds()) {
    for (int round = 0; round < 5'000; ++round) {
      Bytes bytes = seed;
      for (int changes = static_cast<int>(random() % 6); changes >= 0; --changes) {
        const size_t at = 1 + random() % (bytes.size() - 1);
        if (random() % 3 == 0) {
          bytes[at] = static_cast<uint8_t>(random());
        } else {
          bytes[at] ^= static_cast<uint8_t>(1 << (random() % 8));
        }
      }
      if (random() % 4 == 0) bytes.resize(1 + random() % bytes.size());
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
}

}  // namespace
}  // namespace tidewire::control
