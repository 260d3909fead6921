// SPDX-License-Identifier: Apache-2.0
//
// NodeImpl: the parts of a node tied together: one loop thread, acceptor, server, sessions, resolver. Public calls hand
// a task to the loop; all state below the line is the loop's alone.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "control/acceptor.h"
#include "control/asio.h"
#include "control/listeners.h"
#include "control/node.h"
#include "control/resolver.h"
#include "control/server.h"
#include "control/session.h"

namespace tidewire::control {

class NodeImpl final : public Node {
 public:
  NodeImpl(Options options, Handler& handler);
  ~NodeImpl() override;
  Status begin(Listening listening, HostPort advertised);

  void serve() override;
  uint16_t port() const override { return port_; }
  std::string advertised_address() const override { return identity_.name; }
  std::vector<std::string> rail_addresses() const override { return rail_addresses_; }
  void fetch_record(const std::string& address, Nanos deadline, std::function<void(Result<PeerRecord>)> done) override;
  void probe(const std::string& address, Nanos deadline, std::function<void(Status)> done) override;
  void fetch_first_region(const std::string& address, Nanos deadline,
                          std::function<void(Result<FirstRegion>)> done) override;
  void notify(const std::string& address, std::string name, std::string message, Nanos deadline,
              std::function<void(Status)> done, const InstanceId& only) override;
  void dial_data(const std::string& local_address, const std::string& remote_address, const InstanceId& expected,
                 uint64_t channel, Nanos deadline, std::function<void(DataConnection)> done) override;
  void run_at(Nanos when, std::function<void()> task) override;
  void stop() override;
  std::string describe() const override;

 private:
  // Runs task on the loop, or, when the node is closed, reject in the caller.
  void submit(std::function<void()> task, std::function<void(Status)> reject);

  // The loop's own.
  Result<std::shared_ptr<Session>> session(const std::string& address);
  void ask(const std::string& address, FrameType request, FrameType answer, Nanos deadline, Session::Answer done);
  void dial(DialTarget target, HandshakeConfig hello, Nanos deadline, std::function<void(DataConnection)> done);
  void on_connection(Socket socket, const Agreement& agreement, uint32_t rail);
  void begin_stop();
  void stop_when_quiet(Nanos until);
  void make_room();
  void count();

  // Control connections kept without work. Those idle longest make room together: one at a time, every new peer would cost a farewell too.
  static constexpr size_t kMostIdle = 160;
  static constexpr size_t kKeptIdle = 128;

  const Options options_;
  Handler& handler_;
  Identity identity_;
  uint16_t port_ = 0;
  std::vector<std::string> rail_addresses_;

  std::mutex mutex_;  // of stopped_: nothing is posted after the stop sequence
  bool stopped_ = false;
  std::atomic<size_t> sessions_count_{0};
  std::atomic<uint64_t> dialled_data_{0}, taken_data_{0};

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  ScratchBuffer scratch_;
  Resolver resolver_{io_};
  Session::Context context_;
  std::unordered_map<std::string, std::shared_ptr<Session>> sessions_;
  uint64_t last_stream_ = 0;
  std::set<std::shared_ptr<Dial>> dials_;
  Server server_;
  std::unique_ptr<Acceptor> acceptor_;
  asio::steady_timer stop_timer_{io_};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tidewire::control
