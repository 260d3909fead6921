// SPDX-License-Identifier: Apache-2.0
//
// The target's lane: set-up, ending, and what the frames ask for. Its answers go out in target_answers.cpp.
#include "transport/tcp/target_lane.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "transport/tcp/socket.h"

namespace tidewire::transport::tcp {
namespace {

// How much one readiness event may receive before other lanes of the thread have their turn.
constexpr uint64_t kReceiveBudget = 8 << 20;

}  // namespace

TargetLane::TargetLane(Identity identity, UniqueFd socket, RegionTable& regions, Owner& owner,
                       std::shared_ptr<IoThread> io)
    : identity_(std::move(identity)),
      regions_(regions),
      owner_(owner),
      io_(std::move(io)),
      token_(io_->next_token()),
      fd_(std::move(socket)),
      remote_(remote_name(fd_.get())),
      reader_(*this) {}

void TargetLane::start() {
  io_->run([self = shared_from_this()] {
    self->interest_ = EPOLLIN;
    self->io_->add(self->token_, self->fd_.get(), EPOLLIN, self);
    std::unique_lock lock(self->placement_);
    if (!self->cut_) return;
    lock.unlock();
    self->end(self->cut_why_);
  });
}

void TargetLane::cut(const Status& why) {
  std::lock_guard lock(placement_);
  if (cut_) return;
  cut_ = true;
  cut_why_ = why;
  // The I/O thread sees the end of the stream and cleans up.
  if (!ended_) shutdown(fd_.get(), SHUT_RDWR);
}

void TargetLane::end(Status why) {
  {
    std::lock_guard lock(placement_);
    if (ended_) return;
    if (cut_) why = cut_why_;
    ended_ = true;
    cut_ = true;
  }
  if (why.code() == Code::kProtocol) {
    log::warn("tcp_malformed", "lane cut peer={} address={} channel={} why={}", identity_.initiator_name, remote_,
              identity_.channel, why.message());
  } else {
    log::debug("tcp_lane_end", "lane ended peer={} address={} channel={} why={}", identity_.initiator_name, remote_,
               identity_.channel, why.message());
  }
  const std::shared_ptr<TargetLane> alive = shared_from_this();
  io_->remove(token_, fd_.get());
  end_connection(fd_, /*abort=*/why.code() != Code::kPeerGone);
  write_hold_.release();
  staged_.reset();
  answers_.clear();
  owner_.ended(*this);
}

void TargetLane::on_io(uint32_t epoll_events) {
  if (ended_) return;
  if (epoll_events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
    bool progress = false;
    Status why;
    const uint64_t before = reader_.received_bytes();
    const FrameReceiver::Outcome outcome = reader_.run(fd_.get(), kReceiveBudget, progress, why);
    bytes_in_.fetch_add(reader_.received_bytes() - before, std::memory_order_relaxed);
    if (outcome == FrameReceiver::Outcome::kEnded) {
      end(why);
      return;
    }
  }
  if (epoll_events & EPOLLOUT) flush();
}

bool TargetLane::begin_touch() {
  placement_.lock();
  if (!cut_) return true;
  placement_.unlock();
  return false;
}

Status TargetLane::on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) {
  switch (header.type) {
    case wire::Type::kWrite: {
      write_ = header;
      write_refused_ = use_pieces(header, body, Access::kRemoteWrite, write_hold_);
      if (write_refused_.ok()) {
        write_sink_ = MemoryCursor(PieceView::of_table(body, header.count), write_hold_, header.payload_bytes);
        *sink = &write_sink_;
      }
      return {};
    }
    case wire::Type::kRead:
      answer_read(header, body);
      return {};
    case wire::Type::kRevoke:
      if (header.id == identity_.channel) return Status::error(Code::kProtocol, "channel {} revokes itself", header.id);
      owner_.revoke(identity_.initiator, header.id);
      answer(wire::Type::kRevoked, header.id, Status());
      return {};
    case wire::Type::kPing:
      return {};
    default:
      return Status::error(Code::kProtocol, "frame type {} at a target", static_cast<int>(header.type));
  }
}

Status TargetLane::on_payload_end(const Status& placed) {
  const Status status = write_refused_.ok() ? placed : write_refused_;
  write_hold_.release();
  write_refused_ = Status();
  // The bytes are visible before anybody can learn that they are there.
  std::atomic_thread_fence(std::memory_order_release);
  answer(wire::Type::kAck, write_.id, status);
  // After a large payload nothing more to acknowledge is near: the answer goes at once. Small ones gather until the
  // received bytes are used up.
  constexpr uint64_t kAckAtOnce = 64 << 10;
  if (write_.payload_bytes >= kAckAtOnce && !blocked_) flush();
  return {};
}

// All of them or none.
Status TargetLane::use_pieces(const wire::Header& header, const uint8_t* table, Access access, RangeHold& hold) {
  const PieceView pieces = PieceView::of_table(table, header.count);
  for (size_t i = 0; i < pieces.count; ++i) {
    Status used = regions_.use(pieces.address(i), pieces.length(i), access, hold);
    if (used.ok()) continue;
    hold.release();
    return header.count == 1 ? used : used.with_context(fmt::format("piece {} of {}", i, header.count));
  }
  return {};
}

void TargetLane::update_interest() {
  // An initiator that does not read its answers gets no further requests served.
  const uint32_t wanted = (overloaded() ? 0u : EPOLLIN) | (blocked_ ? EPOLLOUT : 0u);
  if (wanted == interest_) return;
  interest_ = wanted;
  io_->set_events(fd_.get(), token_, wanted);
}

std::string TargetLane::describe() const {
  const nlohmann::json object = {{"peer", identity_.initiator_name}, {"address", remote_},
                                 {"channel", identity_.channel},     {"rail", identity_.rail},
                                 {"bytes_in", bytes_in_.load()},     {"bytes_out", bytes_out_.load()}};
  // The name comes from the other side.
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tidewire::transport::tcp
