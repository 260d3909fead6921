// SPDX-License-Identifier: Apache-2.0
//
// InitiatorLane: the initiator's end of one data connection, one channel of the engine.
//
// Set-up and ending (initiator_lane.cpp) happen on the lane's I/O thread. The data path has two roles, each held by one
// thread at a time: the sender (initiator_send.cpp: the posting thread when nothing is queued, otherwise the I/O
// thread) and the receiver (initiator_receive.cpp: a waiter through drive(), otherwise the I/O thread). Local memory is
// touched inside a role only; the lane goes down when both roles are free, which is what makes on_channel_down final.
//
// Promises: any thread; no lock is held during system calls that move bytes, nor when events are raised; events never
// from within open or close.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/unique_fd.h"
#include "transport/tcp/frame_receiver.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/out_frame.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/stall_watch.h"
#include "transport/transport.h"

namespace tidewire::transport::tcp {

class InitiatorLane : public IoHandler,
                      public std::enable_shared_from_this<InitiatorLane>,
                      private FrameReceiver::Client {
 public:
  // `forget` is called on the I/O thread just before on_channel_down.
  InitiatorLane(ChannelId channel, std::string peer, const Settings& settings, Events& events,
                std::shared_ptr<IoThread> io, std::function<void(ChannelId)> forget);

  // Any thread. Without connected() before the deadline the lane goes down.
  void start(Nanos deadline);
  void connected(Status status, UniqueFd socket, const InstanceId& seen);
  void close(const Status& why);
  void post(SlicePtr slice);
  void revoke(ChannelId victim);
  bool drive();
  std::string describe() const;  // a JSON object

  // The I/O thread.
  void on_io(uint32_t epoll_events) override;
  Nanos on_tick(Nanos now) override;

 private:
  struct Awaiting {
    SlicePtr slice;
    bool sending = true;    // the sender may still touch the slice's memory
    bool answered = false;  // while sending: the sender reports `status` when it is through
    Status status;
  };
  struct Done {
    SlicePtr slice;
    Status status;
  };

  // Ending. fail() starts it from any thread; finish() ends it on the I/O thread once both roles are free.
  void fail(const Status& why, const InstanceId& seen = {}, bool only_idle = false);
  void finish();
  void request_finish();
  void take_connection(Status status, UniqueFd socket, const InstanceId& seen);

  // What a thread that is not the lane's sends before it hands over to the I/O thread. A poster sends more only of a slice that is the whole of its
  // job: otherwise the job's other lanes would wait for it, and all sending would happen on its processor.
  static constexpr uint64_t kPostBudget = 256 << 10;

  // The sender's role (initiator_send.cpp).
  void run_sender(uint64_t budget);
  bool next_work();
  bool send_batch(uint64_t& sent);
  bool send_current(uint64_t most, uint64_t& sent);
  void encode_head(const Slice& slice, std::vector<uint8_t>& head) const;
  void make_current(const SlicePtr& slice);
  void settle(size_t finished, std::vector<Done>& done);
  void give_up_slice(const SlicePtr& slice, const Status& why);
  void report(std::vector<Done>& done);
  void release_sender_blocked();
  bool batchable(const Slice& slice) const;
  size_t frame_bytes(const Slice& slice) const;

  // The receiver's role (initiator_receive.cpp).
  bool take_receiver();
  void release_receiver();
  bool receive_some(uint64_t budget);
  Status on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) override;
  Status on_payload_end(const Status& placed) override;
  Status on_ack(const wire::Header& header, const uint8_t* text);

  // Which events the I/O thread hears of. Under mutex_.
  void update_interest();
  // The lane got work: its I/O thread must look after it again.
  void wake_watch();
  bool in_latency_mode() const { return in_flight_.load() <= 1; }

  const ChannelId channel_;
  const std::string peer_;
  const Settings settings_;
  Events& events_;
  const std::shared_ptr<IoThread> io_;
  const IoThread::Token token_;
  const std::function<void(ChannelId)> forget_;

  mutable std::mutex mutex_;
  UniqueFd fd_;  // open from up to down
  bool up_ = false;
  bool down_ = false;
  bool connect_over_ = false;
  Nanos connect_deadline_ = 0;
  Status why_;  // why it is closing
  InstanceId seen_{};
  std::deque<SlicePtr> pending_;   // no byte sent
  std::deque<Awaiting> awaiting_;  // in the order of sending, which is the order of the answers
  size_t answered_ = 0;            // how many at its front are answered while still sending
  std::vector<uint8_t> control_;   // frames without payload that wait
  bool sender_ = false;            // the role is taken
  bool blocked_ = false;           // the socket was full, or work was left to it: the I/O thread sends when it is writable
  bool armed_ = true;              // the I/O thread hears of incoming bytes
  uint32_t interest_ = 0;

  std::atomic<bool> closing_{false};
  std::atomic<bool> receiver_{false};
  std::atomic<bool> dozing_{false};  // on_tick asked for no tick soon
  std::atomic<uint32_t> in_flight_{0};
  std::atomic<Nanos> last_drive_{0};
  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> posts_{0};

  // The sender's.
  std::array<SlicePtr, 64> batch_;
  size_t batch_count_ = 0;
  std::vector<uint8_t> control_now_;
  SlicePtr current_;
  OutFrame frame_;
  StagedPayload staged_;  // of frame_

  // The receiver's.
  FrameReceiver reader_;
  MemoryCursor data_;
  SlicePtr data_slice_;
  Status data_status_;
  Nanos fruitless_since_ = 0;

  // The I/O thread's.
  StallWatch stall_;
  uint64_t posts_seen_ = 0;
  Nanos last_work_ = 0;
  Nanos next_check_ = 0;
};

}  // namespace tidewire::transport::tcp
