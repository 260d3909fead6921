// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the control plane share: nodes with a handler that records, callbacks that can be waited for, raw
// sockets.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/endpoint.h"
#include "control/frame.h"
#include "control/handshake.h"
#include "control/node.h"

namespace tidewire::control::testing {

constexpr auto kHardStop = std::chrono::seconds(60);

inline Nanos in(Nanos time) {
  return monotonic_now() + time;
}
constexpr Nanos kLong = 20 * kSecond;

// A value that a callback delivers: exactly once.
template <typename T>
class Awaited {
 public:
  Awaited() : state_(std::make_shared<State>()) {}
  std::function<void(T)> callback() {
    return [state = state_](T value) {
      std::lock_guard lock(state->mutex);
      ++state->calls;
      if (state->calls == 1) state->value.emplace(std::move(value));
      state->condition.notify_all();
    };
  }
  T& get() {
    std::unique_lock lock(state_->mutex);
    if (!state_->condition.wait_for(lock, kHardStop, [&] { return state_->value.has_value(); })) {
      ADD_FAILURE() << "the callback did not come";
      std::abort();
    }
    return *state_->value;
  }
  int calls() const {
    std::lock_guard lock(state_->mutex);
    return state_->calls;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable condition;
    std::optional<T> value;
    int calls = 0;
  };
  std::shared_ptr<State> state_;
};

class Recorder : public Handler {
 public:
  struct Closed {
    std::string address;
    InstanceId instance;
    Status why;
  };
  struct Data {
    UniqueFd socket;
    DataHello hello;
  };

  PeerRecord local_record() override {
    std::lock_guard lock(mutex_);
    ++records_told;
    return record;
  }
  Result<FirstRegion> first_region() override {
    std::lock_guard lock(mutex_);
    return region;
  }
  Status on_notification(Notification notification) override {
    std::lock_guard lock(mutex_);
    notifications.push_back(std::move(notification));
    changed_.notify_all();
    return notification_verdict;
  }
  void on_data_connection(UniqueFd socket, DataHello hello) override {
    std::lock_guard lock(mutex_);
    data.push_back({std::move(socket), std::move(hello)});
    changed_.notify_all();
  }
  void on_peer_closed(const std::string& address, const InstanceId& instance, const Status& why) override {
    std::lock_guard lock(mutex_);
    closed.push_back({address, instance, why});
    changed_.notify_all();
  }

  template <typename Predicate>
  bool wait(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHardStop, predicate);
  }
  template <typename Read>
  auto locked(Read read) {
    std::lock_guard lock(mutex_);
    return read();
  }

  PeerRecord record;
  int records_told = 0;
  Result<FirstRegion> region = Status(Code::kNotFound, "no region");
  Status notification_verdict;
  std::vector<Notification> notifications;
  std::deque<Data> data;
  std::vector<Closed> closed;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct TestNode {
  explicit TestNode(Options options = {}, bool serves = true) {
    if (options.advertised.empty()) options.advertised = "127.0.0.1";
    if (options.instance == InstanceId{}) options.instance = make_instance_id();
    instance = options.instance;
    recorder.record.instance = instance;
    recorder.record.protocol_version = kProtocolVersion;
    recorder.record.name = options.advertised;
    Result<std::unique_ptr<Node>> started = Node::start(options, recorder);
    status = started.status();
    if (!started.ok()) return;
    node = std::move(*started);
    if (serves) node->serve();
  }
  std::string address() const { return node->advertised_address(); }
  Node* operator->() { return node.get(); }

  Recorder recorder;
  InstanceId instance{};
  Status status;
  std::unique_ptr<Node> node;
};

inline Options with_secret(const std::string& secret) {
  Options options;
  options.secret = secret;
  return options;
}

inline Status probe(TestNode& from, const std::string& address, Nanos timeout = kLong) {
  Awaited<Status> done;
  from->probe(address, in(timeout), done.callback());
  return done.get();
}
inline Status notify(TestNode& from, const std::string& address, const std::string& name, const std::string& message,
                     Nanos timeout = kLong) {
  Awaited<Status> done;
  from->notify(address, name, message, in(timeout), done.callback());
  return done.get();
}
inline Node::DataConnection dial(TestNode& from, const std::string& local, const std::string& remote,
                                 const InstanceId& expected, uint64_t channel = 0, Nanos timeout = kLong) {
  Awaited<Node::DataConnection> done;
  from->dial_data(local, remote, expected, channel, in(timeout), done.callback());
  return std::move(done.get());
}

// A blocking connection to a node, as a stranger makes it. Reads and writes give up after the hard stop.
inline UniqueFd connect_raw(uint16_t port) {
  Endpoint to = *literal_endpoint("127.0.0.1", port);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), to.address(), to.size), 0);
  timeval limit{60, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return fd;
}
inline void send_all(int fd, const std::vector<uint8_t>& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return;  // the node may have closed already
    sent += static_cast<size_t>(count);
  }
}

// True once the other side has closed (or reset) the connection; what it sends before is dropped.
inline bool closed_by_other(int fd) {
  uint8_t buffer[4096];
  for (;;) {
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count == 0) return true;
    if (count < 0) return errno == ECONNRESET;
  }
}

// One side of a hello over a blocking socket.
inline Status greet(int fd, Handshake& handshake) {
  for (;;) {
    send_all(fd, handshake.take_output());
    if (handshake.over()) return handshake.status();
    uint8_t buffer[1024];
    const ssize_t count = recv(fd, buffer, std::min(sizeof(buffer), handshake.wanted()), 0);
    if (count <= 0) return Status(Code::kPeerGone, "closed");
    handshake.feed({buffer, static_cast<size_t>(count)});
  }
}

// The next frame; an empty one when the other side closed.
inline Frame read_frame(int fd) {
  FrameDecoder decoder(kMaxFrameBytes);
  uint8_t buffer[4096];
  while (!decoder.ready() && decoder.status().ok()) {
    const ssize_t count = recv(fd, buffer, std::min(sizeof(buffer), decoder.wanted()), 0);
    if (count <= 0) return {};
    decoder.feed({buffer, static_cast<size_t>(count)});
  }
  return decoder.take();
}

// A listening socket that accepts nothing by itself.
struct RawListener {
  explicit RawListener(int backlog = 16) {
    Endpoint at = *literal_endpoint("127.0.0.1", 0);
    fd = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd.get(), at.address(), at.size), 0);
    EXPECT_EQ(listen(fd.get(), backlog), 0);
    port = local_endpoint(fd.get()).port();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port); }
  UniqueFd accept_one() { return UniqueFd(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  UniqueFd fd;
  uint16_t port = 0;
};

}  // namespace tidewire::control::testing
