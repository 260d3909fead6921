// SPDX-License-Identifier: Apache-2.0
//
// Exactly-once notifications, without I/O. A sender numbers its notifications to one address (a stream) and sends them
// again, in order, after a broken connection; the receiver knows by the number what it has delivered before. Both sides
// are bounded.
//
// NotifyOutbox: the sender's queue for one address. A message is settled by its answer, by its deadline, or because the
// peer is another instance than the one it was sent to. NotifyInbox: the receiver's memory of all streams; a stream
// that has been silent for kForget may be forgotten, which is longer than senders keep a message.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "control/messages.h"

namespace tidewire::control {

class NotifyOutbox {
 public:
  static constexpr size_t kWindow = 256;  // unanswered messages on the wire
  static constexpr size_t kMaxQueuedBytes = 256u << 20;
  using Done = std::function<void(const Status& status)>;
  struct Settled {
    Done done;
    Status status;
  };

  explicit NotifyOutbox(uint64_t stream) : stream_(stream) {}

  // kNoResources when kMaxQueuedBytes are waiting. `only`: the instance that it is for (it has the data that the
  // message tells of), zero = whoever is there; kPeerGone when another one is connected.
  Status enqueue(std::string name, std::string message, Nanos deadline, Done done, const InstanceId& only = {});
  // A connection to `instance` is up: everything unanswered is to be sent again on it. Returns what can't be: it was
  // sent to, or is for, another instance, which may have delivered it.
  std::vector<Settled> connected(const InstanceId& instance);
  void disconnected() { connected_ = false; }
  // The next message to send, or null: none, not connected, or the window is full. Counts it as sent.
  const NotificationMessage* next(Nanos now);
  // The peer's answer to `sequence`; unknown numbers (settled before) are ignored.
  std::vector<Settled> answered(uint64_t sequence, const Status& status);
  std::vector<Settled> expire(Nanos now);
  std::vector<Settled> fail_all(const Status& status);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // kNever when empty.
  Nanos earliest_deadline() const;
  // When the oldest unanswered message went out on the present connection; kNever when there is none.
  Nanos waiting_since() const;

 private:
  struct Entry {
    NotificationMessage message;  // sequence 0: never sent
    Nanos deadline;
    Done done;
    bool on_wire = false;  // on the present connection,
    Nanos sent_at = 0;     // since then
    InstanceId sent_to{};
    InstanceId only{};
  };
  template <typename Predicate>
  std::vector<Settled> settle_if(Predicate predicate, const std::function<Status(const Entry&)>& status);

  const uint64_t stream_;
  uint64_t last_sequence_ = 0;
  bool connected_ = false;
  InstanceId instance_{};
  std::deque<Entry> entries_;
  size_t queued_bytes_ = 0;
  size_t on_wire_ = 0;
};

class NotifyInbox {
 public:
  static constexpr Nanos kForget = 600 * kSecond;
  static constexpr size_t kMaxStreams = 65'536;
  static constexpr size_t kRemembered = 2 * NotifyOutbox::kWindow;  // outcomes other than OK, per stream

  // Runs `deliver` for a new message and returns its outcome; for one that was delivered before, the outcome of then.
  Status receive(const InstanceId& sender, uint64_t stream, uint64_t sequence, Nanos now,
                 const std::function<Status()>& deliver);
  size_t streams() const { return streams_.size(); }

 private:
  using Key = std::pair<InstanceId, uint64_t>;
  struct Stream {
    uint64_t last = 0;
    Nanos used = 0;
    std::deque<std::pair<uint64_t, Status>> refused;
    std::list<Key>::iterator age;
  };
  void forget(Nanos now);

  std::map<Key, Stream> streams_;
  std::list<Key> by_age_;  // least recently used first
};

}  // namespace tidewire::control
