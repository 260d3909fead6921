// SPDX-License-Identifier: Apache-2.0
//
// Channel: an initiator's path to one target on this host: the socket over which it was set up and asks for regions,
// the target's guard page, and the mappings of its memory.
//
// Set-up and answers run on the loop's thread; slices are copied on whatever thread posts, drives or works. Going down:
// no copy may start any more, what is queued is dropped, the copies under way are awaited, then on_channel_down is
// reported, always from the loop's thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/shm/copier.h"
#include "transport/shm/copy_queue.h"
#include "transport/shm/local_socket.h"
#include "transport/shm/loop.h"
#include "transport/shm/target.h"
#include "transport/transport.h"

namespace tidewire::transport::shm {

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  struct Context {
    Loop& loop;
    CopyQueue& queue;
    Events& events;
    const LocalIdentity& identity;
    std::function<void(ChannelId)> forget;  // called just before on_channel_down
    std::function<void()> reported;         // called just after it
  };
  Channel(const Context& context, ChannelId id, const PeerRecord& peer, Nanos deadline);

  // Starts connecting; reported through Events.
  void open();
  void post(SlicePtr slice);
  void close(const Status& why);
  // Copies one chunk of queued work.
  void run(const WorkPtr& work, uint32_t chunk);

  std::string describe() const;  // one JSON object

 private:
  enum class Phase : uint8_t { kOpening, kUp, kClosing, kDown };
  enum class Awaiting : uint8_t { kChallenge, kWelcome, kAnswers };
  struct Parked {
    WorkPtr work;
    uint32_t chunk;
    std::vector<uint64_t> missing;
  };

  // A copy may go on between enter() and leave(); on_channel_down waits for it.
  bool enter();
  void leave();
  void copy_here();
  void finish_chunk(const WorkPtr& work, const Status& status);
  WorkPtr make_work(SlicePtr slice, Stretches stretches);
  void start(const WorkPtr& work);
  void readmit(const WorkPtr& work);
  void report(const SlicePtr& slice, const Status& status);
  void park(const WorkPtr& work, uint32_t chunk, std::vector<uint64_t> missing);

  // On the loop's thread.
  void connect();
  bool on_packets();
  Status on_packet(Received& received);
  Status on_challenge(const Challenge& challenge);
  Status on_welcome(const Welcome& welcome, std::vector<UniqueFd> descriptors);
  Status prove_foreign(const Welcome& welcome) const;
  void ask();
  Status on_regions(const Regions& answer, std::vector<UniqueFd> descriptors);
  Result<RemoteRegionPtr> region_from(const RegionInfo& info, std::vector<UniqueFd>& descriptors);
  void go_down(const Status& why);
  void finish_down();

  const Context context_;
  const ChannelId id_;
  const InstanceId expected_;
  const std::string socket_name_;
  const Nanos deadline_;
  RemoteSide remote_;

  std::atomic<Phase> phase_{Phase::kOpening};
  std::atomic<bool> stop_{false};    // copies end at their next step
  std::atomic<uint32_t> active_{0};  // between enter and leave

  std::mutex parked_mutex_;
  std::vector<Parked> parked_;
  bool ask_posted_ = false;

  // On the loop's thread.
  Awaiting awaiting_ = Awaiting::kChallenge;
  std::unique_ptr<Watch> socket_;
  std::unique_ptr<Watch> death_;
  Timer timer_;
  Timer retry_;
  HandshakeFacts facts_;
  InstanceId seen_{};
  Status why_;
  uint64_t request_ = 0;
  bool asking_ = false;
  std::map<uint32_t, std::shared_ptr<Mapping>> files_;
};

}  // namespace tidewire::transport::shm
