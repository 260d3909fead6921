// SPDX-License-Identifier: Apache-2.0
#include "store/master/master_host.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "base/log.h"
#include "store/admin/pages.h"
#include "store/master/file_journal.h"

namespace tidewire::store {
namespace {

using StatusCode = tidewire::Code;

// After a message something may be due before the next tick, waiting puts for instance; how soon it is looked after.
constexpr Nanos kSoon = 5 * kMillisecond;
// The connection of this host's own client. Those of the server count from 1.
constexpr ConnectionId kOwnConnection = UINT64_MAX;

class NoJournal final : public Journal {
 public:
  Status append(const std::vector<JournalRecord>&) override { return Status(); }
};

// A client must have a few heartbeats within its time to live, and a grant must last for a write lease after it was
// asked for again.
MasterOptions fitted(MasterOptions options) {
  options.heartbeat = std::min(options.heartbeat, std::max(options.client_ttl / 5, 20 * kMillisecond));
  options.grant = std::max(options.grant, 2 * options.write_lease);
  uint64_t seed = 0;
  const InstanceId random = make_instance_id();
  for (size_t i = 0; i < sizeof seed; ++i) seed = seed << 8 | random[i];
  options.seed = seed;
  return options;
}

}  // namespace

MasterHost::MasterHost(MasterHostOptions options)
    : options_(std::move(options)),
      id_(make_instance_id()),
      started_(monotonic_now()),
      own_client_(make_instance_id()) {}

MasterHost::~MasterHost() {
  stop();
}

Result<std::unique_ptr<MasterHost>> MasterHost::start(MasterHostOptions options) {
  std::unique_ptr<MasterHost> host(new MasterHost(std::move(options)));
  TW_RETURN_IF_ERROR(host->begin());
  return host;
}

Status MasterHost::begin() {
  MasterServer::Options server;
  server.host = options_.host;
  server.port = options_.port;
  server.advertised = options_.advertised;
  server.secret = options_.secret;
  server.instance = id_;
  TW_ASSIGN_OR_RETURN(server_, MasterServer::listen(server, *this));
  JournalState state;
  if (options_.journal.empty()) {
    journal_ = std::make_unique<NoJournal>();
    log::info("store_journal", "no journal: after a restart this master waits for the owners' terms and generations");
  } else {
    TW_ASSIGN_OR_RETURN(std::unique_ptr<FileJournal> journal, FileJournal::open(options_.journal));
    state = journal->load();
    journal_ = std::move(journal);
  }
  TW_ASSIGN_OR_RETURN(master_,
                      Master::start(fitted(options_.master), id_, std::move(state), *journal_, *this, monotonic_now()));
  TW_RETURN_IF_ERROR(server_->start());
  server_->post([this] { tick(); });
  return Status();
}

void MasterHost::stop() {
  if (server_) server_->stop();
}

void MasterHost::on_message(ConnectionId connection, Message message) {
  take(std::pair(connection, std::move(message)));
}

void MasterHost::on_closed(ConnectionId connection, const Status&) {
  take(Closed{connection});
}

// Sending may close a connection and tell so from within: what comes meanwhile waits until the state machine is left.
void MasterHost::take(Event event) {
  events_.push_back(std::move(event));
  if (inside_) return;
  inside_ = true;
  while (!events_.empty()) {
    Event next = std::move(events_.front());
    events_.pop_front();
    const Nanos now = monotonic_now();
    if (auto* message = std::get_if<std::pair<ConnectionId, Message>>(&next))
      master_->on_message(message->first, std::move(message->second), now);
    else
      master_->on_closed(std::get<Closed>(next).connection, now);
  }
  inside_ = false;
  const Nanos soon = monotonic_now() + kSoon;
  if (next_tick_ > soon) tick_at(soon);
}

void MasterHost::tick() {
  inside_ = true;
  const Nanos next = master_->tick(monotonic_now());
  inside_ = false;
  tick_at(next);
  if (events_.empty()) return;
  Event first = std::move(events_.front());
  events_.pop_front();
  take(std::move(first));
}

void MasterHost::tick_at(Nanos when) {
  next_tick_ = when;
  server_->run_at(when, [this, number = ++tick_number_] {
    if (number == tick_number_) tick();
  });
}

void MasterHost::send(ConnectionId connection, Message message) {
  if (connection != kOwnConnection) {
    server_->send(connection, message);
    return;
  }
  const auto found = asked_.find(message.request);
  if (message.answer && found != asked_.end() && found->second)
    std::exchange(found->second, nullptr)(std::move(message.body));
}

void MasterHost::begin_ask(uint64_t request, Body body, std::function<void(Body)> done) {
  Attach attach;
  attach.client = own_client_;
  attach.name = "administrator of " + address();
  take(std::pair(kOwnConnection, Message{0, false, std::move(attach)}));
  asked_[request] = [this, request, done = std::move(done)](Body answer) {
    done(std::move(answer));
    server_->post([this, request] { end_ask(request); });
  };
  take(std::pair(kOwnConnection, Message{request, false, std::move(body)}));
}

void MasterHost::end_ask(uint64_t request) {
  if (asked_.erase(request) > 0 && asked_.empty()) take(Closed{kOwnConnection});
}

// The task may run after this side has given up: it owns what it needs.
template <typename T>
Result<T> MasterHost::on_loop(Nanos timeout, std::function<T()> make) {
  const auto promise = std::make_shared<std::promise<T>>();
  std::future<T> future = promise->get_future();
  if (!server_->post([promise, make = std::move(make)] { promise->set_value(make()); }))
    return Status(StatusCode::kClosed, "the master was stopped");
  if (future.wait_for(std::chrono::nanoseconds(timeout)) != std::future_status::ready)
    return Status::error(StatusCode::kTimeout, "the master did not answer within {} ms", timeout / kMillisecond);
  return future.get();
}

Result<MasterSnapshot> MasterHost::snapshot(Nanos timeout) {
  return on_loop<MasterSnapshot>(timeout, [this] {
    const Nanos now = monotonic_now();
    MasterSnapshot all{master_->term(),       master_->taking_over(), master_->objects(), now - started_,
                       master_->clients(now), master_->segments(),    master_->counters()};
    std::erase_if(all.clients, [this](const Master::ClientView& client) { return client.id == own_client_; });
    return all;
  });
}

Result<std::vector<std::string>> MasterHost::keys(size_t limit, Nanos timeout) {
  return on_loop<std::vector<std::string>>(timeout, [this, limit] { return master_->keys(limit); });
}

Result<std::vector<GetPlace>> MasterHost::look(std::vector<std::string> keys, Nanos timeout) {
  return on_loop<std::vector<GetPlace>>(timeout, [this, keys = std::move(keys)] {
    std::vector<GetPlace> places;
    for (const std::string& key : keys) places.push_back(master_->look(key));
    return places;
  });
}

Result<Body> MasterHost::ask(Body request, Nanos timeout) {
  const auto promise = std::make_shared<std::promise<Body>>();
  std::future<Body> future = promise->get_future();
  const uint64_t number = ++last_ask_;
  const bool posted = server_->post([this, number, promise, body = std::move(request)]() mutable {
    begin_ask(number, std::move(body), [promise](Body answer) { promise->set_value(std::move(answer)); });
  });
  if (!posted) return Status(StatusCode::kClosed, "the master was stopped");
  if (future.wait_for(std::chrono::nanoseconds(timeout)) == std::future_status::ready) return future.get();
  server_->post([this, number] { end_ask(number); });
  return Status::error(StatusCode::kTimeout, "the master did not answer within {} ms", timeout / kMillisecond);
}

Result<std::string> MasterHost::status_json() {
  TW_ASSIGN_OR_RETURN(const MasterSnapshot now, snapshot());
  return admin::status_json(address(), id_, now);
}

}  // namespace tidewire::store
