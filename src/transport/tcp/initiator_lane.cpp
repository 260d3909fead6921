// SPDX-License-Identifier: Apache-2.0
//
// Set-up, watching and ending of the initiator's lane; all of it on the I/O thread except where said.
#include "transport/tcp/initiator_lane.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tidewire::transport::tcp {
namespace {

constexpr Nanos kWatchPeriod = 100 * kMillisecond;
// How long an idle lane is still watched before it dozes: a lane in use is not woken for every slice.
constexpr Nanos kDozeAfter = 1 * kSecond;
// How often the I/O thread looks whether waiters still receive in its place.
constexpr Nanos kDrivenPeriod = 1 * kMillisecond;

}  // namespace

InitiatorLane::InitiatorLane(ChannelId channel, std::string peer, const Settings& settings, Events& events,
                             std::shared_ptr<IoThread> io, std::function<void(ChannelId)> forget)
    : channel_(channel),
      peer_(std::move(peer)),
      settings_(settings),
      events_(events),
      io_(std::move(io)),
      token_(io_->next_token()),
      forget_(std::move(forget)),
      reader_(*this),
      stall_(settings.stall_timeout) {}

void InitiatorLane::start(Nanos deadline) {
  connect_deadline_ = deadline;
  io_->run([self = shared_from_this()] { self->io_->add_timer_only(self->token_, self); });
}

void InitiatorLane::connected(Status status, UniqueFd socket, const InstanceId& seen) {
  // std::function wants copyable captures.
  auto owned = std::make_shared<UniqueFd>(std::move(socket));
  io_->run([self = shared_from_this(), status = std::move(status), owned, seen] {
    self->take_connection(status, std::move(*owned), seen);
  });
}

void InitiatorLane::take_connection(Status status, UniqueFd socket, const InstanceId& seen) {
  if (status.ok() && !socket.valid()) status = Status(Code::kInternal, "connected without a socket");
  {
    std::lock_guard lock(mutex_);
    connect_over_ = true;
    if (closing_.load() || down_) return;  // the socket closes here
    if (status.ok()) {
      tune_socket(socket.get(), settings_, false);
      fd_ = std::move(socket);
      up_ = true;
      interest_ = EPOLLIN;
    }
  }
  if (!status.ok()) {
    fail(status, seen);
    return;
  }
  last_work_ = monotonic_now();
  stall_.restart(last_work_);
  io_->add(token_, fd_.get(), EPOLLIN, shared_from_this());
  events_.on_channel_up(channel_);
}

void InitiatorLane::close(const Status& why) {
  fail(why);
}

// Any thread. Later reasons lose against the first.
void InitiatorLane::fail(const Status& why, const InstanceId& seen, bool only_idle) {
  {
    std::lock_guard lock(mutex_);
    if (down_ || closing_.load() || (only_idle && in_flight_.load() != 0)) return;
    why_ = why.ok() ? Status(Code::kClosed, "closed") : why;
    seen_ = seen;
    closing_.store(true);
    // Ends the system calls of both roles soon; what is sent until then is bounded by one call.
    if (fd_.valid()) shutdown(fd_.get(), SHUT_RDWR);
  }
  request_finish();
}

void InitiatorLane::request_finish() {
  io_->run([self = shared_from_this()] { self->finish(); });
}

void InitiatorLane::finish() {
  std::deque<SlicePtr> pending;
  std::deque<Awaiting> awaiting;
  UniqueFd fd;
  {
    std::lock_guard lock(mutex_);
    // A role's holder asks again when it lets go: whoever takes a role after closing_ was set lets go without touching
    // anything.
    if (down_ || !closing_.load() || sender_ || receiver_.load()) return;
    down_ = true;
    up_ = false;
    pending.swap(pending_);
    awaiting.swap(awaiting_);
    fd = std::move(fd_);
  }
  const bool abort = !awaiting.empty() || !pending.empty();
  io_->remove(token_, fd.get());
  end_connection(fd, abort);
  in_flight_.store(0);
  current_.reset();
  data_slice_.reset();
  for (SlicePtr& slice : batch_) slice.reset();
  staged_.reset();
  frame_ = OutFrame();
  data_ = MemoryCursor();
  pending.clear();
  awaiting.clear();
  forget_(channel_);
  events_.on_channel_down(channel_, why_, seen_);
}

void InitiatorLane::update_interest() {
  if (!up_ || closing_.load()) return;
  const uint32_t wanted = (armed_ ? EPOLLIN : 0u) | (blocked_ ? EPOLLOUT : 0u);
  if (wanted == interest_) return;
  interest_ = wanted;
  io_->set_events(fd_.get(), token_, wanted);
}

void InitiatorLane::wake_watch() {
  if (dozing_.load() && dozing_.exchange(false)) io_->request_tick(token_);
}

void InitiatorLane::on_io(uint32_t epoll_events) {
  if (closing_.load()) {
    // A shut-down socket would go on reporting; finish() removes it once the roles are free.
    std::lock_guard lock(mutex_);
    if (fd_.valid() && interest_ != EPOLLET) io_->set_events(fd_.get(), token_, interest_ = EPOLLET);
    return;
  }
  if (epoll_events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
    // A waiter that spins for its one slice receives it without us: leave the role and look again soon.
    constexpr Nanos kDriving = 5 * kMicrosecond;
    const bool driven = (epoll_events & (EPOLLERR | EPOLLHUP)) == 0 && in_latency_mode() &&
                        monotonic_now() - last_drive_.load(std::memory_order_relaxed) < kDriving;
    if (driven || !take_receiver()) {
      {
        std::lock_guard lock(mutex_);
        armed_ = false;
        update_interest();
      }
      // The holder may have let go before armed_ fell; then nobody else would notice.
      if (!driven && take_receiver()) {
        {
          std::lock_guard lock(mutex_);
          armed_ = true;
          update_interest();
        }
        release_receiver();
      } else {
        io_->request_tick(token_);
      }
    } else {
      receive_some(4 << 20);
      release_receiver();
    }
  }
  if (epoll_events & EPOLLOUT) {
    bool mine = false;
    {
      std::lock_guard lock(mutex_);
      if (!closing_.load() && blocked_ && !sender_) mine = sender_ = true;
    }
    if (mine) run_sender(4 << 20);
  }
}

Nanos InitiatorLane::on_tick(Nanos now) {
  bool connecting;
  bool armed;
  {
    std::lock_guard lock(mutex_);
    if (down_ || closing_.load()) return kNever;
    connecting = !up_;
    armed = armed_;
  }
  if (connecting) {
    if (now < connect_deadline_) return connect_deadline_;
    fail(Status::error(Code::kTimeout, "connecting to {} took longer than allowed", peer_));
    return kNever;
  }
  if (!armed && now - last_drive_.load(std::memory_order_relaxed) > kDrivenPeriod) {
    std::lock_guard lock(mutex_);
    armed_ = armed = true;
    update_interest();
  }

  const uint64_t posts = posts_.load(std::memory_order_relaxed);
  if (in_flight_.load() == 0) {
    if (posts != posts_seen_) {
      posts_seen_ = posts;
      last_work_ = now;
    }
    stall_.restart(now);
    const Nanos idle_at = last_work_ + settings_.idle_close;
    if (now >= idle_at) {
      fail(Status::error(Code::kClosed, "idle for {} s", settings_.idle_close / kSecond), {}, /*only_idle=*/true);
      return now + kWatchPeriod;
    }
    if (now - last_work_ < kDozeAfter) return now + (armed ? kWatchPeriod : kDrivenPeriod);
    // Either a post that comes now sees dozing_, or this sees its slice.
    dozing_.store(true);
    if (in_flight_.load() == 0 && armed) return idle_at;
    dozing_.store(false);
    return now + (armed ? kWatchPeriod : kDrivenPeriod);
  }

  last_work_ = now;
  const Nanos next = now + (armed ? kWatchPeriod : kDrivenPeriod);
  if (now < next_check_) return std::min(next, next_check_);
  next_check_ = now + kWatchPeriod;
  LinkProgress progress;
  if (link_progress(fd_.get(), progress)) {
    switch (stall_.check(progress, now)) {
      case StallWatch::Verdict::kFine:
        break;
      case StallWatch::Verdict::kDead:
        fail(Status::error(Code::kTimeout, "stalled: {} acknowledged nothing for {} ms", peer_,
                           settings_.stall_timeout / kMillisecond));
        return kNever;
      case StallWatch::Verdict::kAsk: {
        bool mine = false;
        {
          std::lock_guard lock(mutex_);
          if (control_.size() >= wire::kHeaderBytes) break;  // others wait to be sent: they do as well
          const size_t before = control_.size();
          control_.resize(before + wire::kHeaderBytes);
          wire::encode(wire::Header{wire::Type::kPing}, control_.data() + before);
          if (!sender_ && !blocked_) mine = sender_ = true;
        }
        if (mine) run_sender(kPostBudget);
        break;
      }
    }
  }
  return next;
}

std::string InitiatorLane::describe() const {
  std::lock_guard lock(mutex_);
  LinkProgress progress;
  if (up_) link_progress(fd_.get(), progress);
  const nlohmann::json object = {{"channel", channel_},
                                 {"peer", peer_},
                                 {"up", up_},
                                 {"in_flight", in_flight_.load()},
                                 {"bytes_sent", bytes_sent_.load()},
                                 {"bytes_received", bytes_received_.load()},
                                 {"rtt_us", progress.rtt / kMicrosecond}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tidewire::transport::tcp
