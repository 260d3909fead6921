// SPDX-License-Identifier: Apache-2.0
//
// What a target knows of one initiator. On the loop's thread.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/shm/target.h"

namespace tidewire::transport::shm {

struct Target::Peer {
  enum class Phase { kHello, kProof, kUp };
  explicit Peer(Loop& loop) : timer(loop) {}

  Phase phase = Phase::kHello;
  pid_t pid = 0;
  std::unique_ptr<Watch> socket;
  std::unique_ptr<Watch> death;  // of the process; its socket may live on in a forked child
  Timer timer;
  HandshakeFacts facts;
  std::shared_ptr<PeerReferences> references;

  struct File {
    uint64_t inode;
    bool writable;
    bool operator<(const File& other) const {
      return std::pair(inode, writable) < std::pair(other.inode, other.writable);
    }
  };
  std::map<File, uint32_t> files;  // passed already, with their number
  uint32_t next_file = 1;
  std::vector<uint32_t> forgets;  // not yet sent
  bool forgets_waiting = false;   // for the socket to become writable
};

// 0 when it can't be told.
uint64_t file_inode(int fd);

}  // namespace tidewire::transport::shm
