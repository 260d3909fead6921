// SPDX-License-Identifier: Apache-2.0
//
// Connection: frames over a control connection whose hello is done, for whoever dialled and whoever accepted. Reads
// into the loop's shared scratch buffer, so that an idle connection holds no buffer. Stops reading while the other side
// leaves too much unread, so that nobody makes us pile up answers.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "control/frame.h"
#include "control/loop.h"
#include "control/protocol.h"

namespace tidewire::control {

using ScratchBuffer = std::array<uint8_t, 65'536>;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Events {
    std::function<void(Frame frame)> on_frame;
    // Once, unless close() came first. kPeerGone when the other side closed, kProtocol when it sent what is no frame.
    std::function<void(const Status& why)> on_closed;
  };

  struct Limits {
    uint32_t max_payload;  // of a frame from the other side
    size_t max_backlog;    // bytes that it may leave unread before it is read no further
  };

  Connection(Socket socket, Agreement agreement, Limits limits, ScratchBuffer& scratch);
  void start(Events events);

  void send(std::vector<uint8_t> frame);
  // Sends what is queued and this last frame, then waits for the other side to close (bounded by its owner's close());
  // frames that still arrive are dropped. on_closed follows.
  void finish(std::vector<uint8_t> last_frame);
  void close();
  bool open() const { return socket_.is_open(); }
  bool finishing() const { return finishing_; }

  const Agreement& agreement() const { return agreement_; }
  // Time of the last bytes from the other side.
  Nanos heard() const { return heard_; }

 private:
  void wait_readable();
  void read();
  // Hands out the frames in the bytes until the connection is congested; returns how many bytes that took.
  size_t take_frames(std::span<const uint8_t> bytes);
  // After a write: with what was left lying, then with what comes.
  void go_on();
  // The other side asks more than it reads.
  bool congested() const { return queued_bytes_ > limits_.max_backlog; }
  void write();
  void fail(const Status& why);

  Socket socket_;
  const Agreement agreement_;
  const Limits limits_;
  FrameDecoder decoder_;
  ScratchBuffer& scratch_;
  Events events_;
  std::vector<uint8_t> held_;  // read, but not looked at while congested
  std::deque<std::vector<uint8_t>> queue_;
  size_t queued_bytes_ = 0;
  size_t in_write_ = 0;  // frames handed to the running write
  bool waiting_ = false;
  bool finishing_ = false;
  Nanos heard_;
};

}  // namespace tidewire::control
