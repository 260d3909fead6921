// SPDX-License-Identifier: Apache-2.0
//
// TargetLane: the target's end of one data connection. It checks the ranges of each frame against the region table,
// places or sends the bytes, and answers in the order of the requests: a slice is acknowledged after its last byte is
// in place.
//
// Everything happens on the lane's I/O thread, except cut(): when that returns, nothing more of the lane is placed.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/settings.h"
#include "base/unique_fd.h"
#include "memory/region.h"
#include "transport/peer_record.h"
#include "transport/tcp/frame_receiver.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/out_frame.h"

namespace tidewire::transport::tcp {

class TargetLane : public IoHandler, public std::enable_shared_from_this<TargetLane>, private FrameReceiver::Client {
 public:
  struct Identity {
    InstanceId initiator{};
    std::string initiator_name;  // for messages
    uint64_t channel = 0;
    uint32_t rail = 0;
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    // Returns when nothing of the victim can be placed any more.
    virtual void revoke(const InstanceId& initiator, uint64_t victim) = 0;
    // The lane ended; on its I/O thread, last call.
    virtual void ended(TargetLane& lane) = 0;
  };

  TargetLane(Identity identity, UniqueFd socket, RegionTable& regions, Owner& owner, std::shared_ptr<IoThread> io);

  void start();
  // Any thread but not from within a touch of this lane. Waits for the placement in progress (one system call or copy).
  void cut(const Status& why);
  const Identity& identity() const { return identity_; }
  std::string describe() const;  // a JSON object

  void on_io(uint32_t epoll_events) override;
  Nanos on_tick(Nanos) override { return kNever; }

 private:
  // An answer on its way. Acks gather in frame.head of the last one until a read's data needs an entry of its own.
  struct Answer {
    OutFrame frame;
    std::vector<uint8_t> table;  // what frame.payload walks
    RangeHold hold;
    uint64_t slice = 0;
    bool is_data = false;
  };

  Status on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) override;
  Status on_payload_end(const Status& placed) override;
  bool begin_touch() override;
  void end_touch() override { placement_.unlock(); }
  void on_received() override {
    if (!blocked_) flush();
  }
  bool paused() const override { return overloaded(); }

  Status use_pieces(const wire::Header& header, const uint8_t* table, Access access, RangeHold& hold);
  void answer_read(const wire::Header& header, const uint8_t* table);
  void answer(wire::Type type, uint64_t id, const Status& status);
  Answer& ack_entry();
  void flush();
  void cut_data(Answer& data, const Status& why);
  bool overloaded() const { return answers_.size() > kMostAnswers || queued_bytes_ > kMostQueuedBytes; }
  void update_interest();
  void end(Status why);

  // What an initiator may leave unread before its requests wait.
  static constexpr size_t kMostAnswers = 1'024;
  static constexpr size_t kMostQueuedBytes = 8 << 20;

  const Identity identity_;
  RegionTable& regions_;
  Owner& owner_;
  const std::shared_ptr<IoThread> io_;
  const IoThread::Token token_;
  UniqueFd fd_;
  std::string remote_;

  // Guards every touch of registered memory by this lane's writes, and cut_.
  std::mutex placement_;
  bool cut_ = false;
  Status cut_why_;
  bool ended_ = false;  // under placement_: fd_ is closed

  FrameReceiver reader_;
  wire::Header write_;  // the write whose payload is coming
  RangeHold write_hold_;
  MemoryCursor write_sink_;
  Status write_refused_;

  std::deque<Answer> answers_;
  StagedPayload staged_;  // of the first answer
  size_t queued_bytes_ = 0;
  bool blocked_ = false;
  uint32_t interest_ = 0;
  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};
};

}  // namespace tidewire::transport::tcp
