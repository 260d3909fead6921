// SPDX-License-Identifier: Apache-2.0
//
// The moving of slices over a channel, and its end. Set-up and lookups: channel_setup.cpp.
#include "transport/shm/channel.h"

#include <algorithm>

#include "base/log.h"

namespace tidewire::transport::shm {
namespace {

// Up to here a slice is copied by the thread that posts it: waking another takes longer.
constexpr uint64_t kInlineBytes = 64 * 1024;
constexpr size_t kInlinePieces = 256;
// Handlers may post from within on_slice_done; deeper than this the slice goes to a worker instead of down the stack.
constexpr int kMaxNesting = 8;
// A region that changes so often while one chunk is copied is not worth waiting for.
constexpr uint32_t kMaxQuestions = 32;

thread_local int nesting = 0;

bool is_small(const Slice& slice) {
  return slice.bytes <= kInlineBytes && slice.pieces.size() <= kInlinePieces;
}

}  // namespace

Channel::Channel(const Context& context, ChannelId id, const PeerRecord& peer, Nanos deadline)
    : context_(context),
      id_(id),
      expected_(peer.instance),
      socket_name_(peer.same_host_socket),
      deadline_(deadline),
      timer_(context.loop),
      retry_(context.loop) {
  remote_.name = peer.name;
}

bool Channel::enter() {
  active_.fetch_add(1, std::memory_order_seq_cst);
  if (phase_.load(std::memory_order_seq_cst) == Phase::kUp) return true;
  leave();
  return false;
}

void Channel::leave() {
  if (active_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
      phase_.load(std::memory_order_seq_cst) == Phase::kClosing) {
    context_.loop.post([self = shared_from_this()] { self->finish_down(); });
  }
}

void Channel::post(SlicePtr slice) {
  if (!enter()) {
    context_.events.on_slice_done(
        id_, slice, Status(Code::kUnreachable, "the same-host channel to " + remote_.name + " is not up"));
    return;
  }
  if (slice->pieces.empty()) {
    context_.events.on_slice_done(id_, slice, {});
    leave();
    return;
  }
  std::vector<uint64_t> unknown;
  const Status status = admit(remote_, *slice, &unknown);
  if (!status.ok()) {
    report(slice, status);
  } else if (unknown.empty() && is_small(*slice) && nesting < kMaxNesting) {
    Chunk chunk{0, 0, slice->bytes, 0};
    CopyResult result = copy_chunk(remote_, *slice, chunk, stop_);
    if (result.kind == CopyResult::kMissing) {
      const WorkPtr work = make_work(std::move(slice), {{chunk}, {1}});
      work->admitted = true;
      park(work, 0, std::move(result.missing));
    } else if (result.kind != CopyResult::kStopped) {
      report(slice, result.status);
    }
  } else {
    Stretches stretches =
        is_small(*slice) ? Stretches{{{0, 0, slice->bytes, 0}}, {1}} : cut(*slice, context_.queue.threads() + 1);
    const WorkPtr work = make_work(std::move(slice), std::move(stretches));
    if (unknown.empty()) {
      start(work);
    } else {
      work->unfinished = 1;
      park(work, 0, std::move(unknown));
    }
  }
  leave();
}

WorkPtr Channel::make_work(SlicePtr slice, Stretches stretches) {
  auto work = std::make_shared<Work>();
  work->channel = shared_from_this();
  work->slice = std::move(slice);
  work->chunks = std::move(stretches.chunks);
  uint32_t begin = 0;
  for (const uint32_t end : stretches.ends) work->stretches.push_back({std::exchange(begin, end), end});
  work->unfinished = static_cast<uint32_t>(work->chunks.size());
  return work;
}

// Gives the chunks of an admitted slice to whoever copies.
void Channel::start(const WorkPtr& work) {
  work->admitted = true;
  work->unfinished = static_cast<uint32_t>(work->chunks.size());
  if (!context_.queue.push(work)) copy_here();
}

// Between enter and leave: a slice whose regions were asked for looks at all of them again.
void Channel::readmit(const WorkPtr& work) {
  std::vector<uint64_t> unknown;
  const Status status = admit(remote_, *work->slice, &unknown);
  if (!status.ok()) {
    finish_chunk(work, status);
  } else if (!unknown.empty()) {
    // Only questions that repeat themselves count: a slice may lie in more regions than one question names.
    if (std::exchange(work->asked_for, unknown.front()) != unknown.front()) work->chunks[0].lookups = 0;
    park(work, 0, std::move(unknown));
  } else if (work->chunks.size() == 1) {
    work->admitted = true;
    run(work, 0);  // a small one: at once
  } else {
    start(work);
  }
}

void Channel::report(const SlicePtr& slice, const Status& status) {
  ++nesting;
  context_.events.on_slice_done(id_, slice, status);
  --nesting;
  if (status.code() == Code::kPeerGone) close(status);
}

// For the case that no worker could be started.
void Channel::copy_here() {
  context_.loop.post([self = shared_from_this()] {
    while (self->context_.queue.run_one(self.get())) {
    }
  });
}

void Channel::run(const WorkPtr& work, uint32_t index) {
  if (!enter()) return;  // the slice is handed back when the channel is reported down
  if (work->failed.load(std::memory_order_relaxed)) {
    finish_chunk(work, {});
  } else {
    CopyResult result = copy_chunk(remote_, *work->slice, work->chunks[index], stop_);
    if (result.kind == CopyResult::kMissing) {
      park(work, index, std::move(result.missing));
    } else if (result.kind != CopyResult::kStopped) {
      finish_chunk(work, result.status);
    }
  }
  leave();
}

// Between enter and leave.
void Channel::finish_chunk(const WorkPtr& work, const Status& status) {
  if (!status.ok()) {
    std::lock_guard lock(work->mutex);
    if (work->status.ok()) work->status = status;
    work->failed.store(true, std::memory_order_relaxed);
  }
  if (work->unfinished.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Status final_status;
  {
    std::lock_guard lock(work->mutex);
    final_status = work->status;
  }
  context_.events.on_slice_done(id_, work->slice, final_status);
  if (final_status.code() == Code::kPeerGone) close(final_status);
}

void Channel::park(const WorkPtr& work, uint32_t index, std::vector<uint64_t> missing) {
  if (++work->chunks[index].lookups > kMaxQuestions) {
    finish_chunk(work, Status::error(Code::kNotRegistered, "the region at {:#x} of {} keeps changing", missing.front(),
                                     remote_.name));
    return;
  }
  std::lock_guard lock(parked_mutex_);
  parked_.push_back({work, index, std::move(missing)});
  if (std::exchange(ask_posted_, true)) return;
  context_.loop.post([self = shared_from_this()] { self->ask(); });
}

void Channel::close(const Status& why) {
  stop_.store(true);
  Phase phase = phase_.load();
  while (phase != Phase::kClosing && phase != Phase::kDown && !phase_.compare_exchange_weak(phase, Phase::kClosing)) {
  }
  context_.loop.post([self = shared_from_this(), why] { self->go_down(why); });
}

void Channel::go_down(const Status& why) {
  stop_.store(true);
  if (phase_.load() == Phase::kDown) return;
  phase_.store(Phase::kClosing, std::memory_order_seq_cst);
  if (why_.ok()) why_ = why.ok() ? Status(Code::kClosed, "the channel was closed") : why;
  timer_.cancel();
  retry_.cancel();
  death_.reset();
  socket_.reset();
  context_.queue.drop(this);
  finish_down();
}

void Channel::finish_down() {
  if (phase_.load() != Phase::kClosing || active_.load(std::memory_order_seq_cst) != 0) return;
  // close() marks the channel before go_down runs with the reason; the last copy may end in between.
  if (why_.ok()) return;
  phase_.store(Phase::kDown);
  context_.queue.drop(this);  // what a copy put there while it ended
  std::vector<Parked> parked;
  {
    std::lock_guard lock(parked_mutex_);
    parked.swap(parked_);
  }
  parked.clear();
  files_.clear();
  remote_.map.clear();
  context_.forget(id_);
  context_.events.on_channel_down(id_, why_, seen_);
  context_.reported();
}

std::string Channel::describe() const {
  static constexpr const char* kNames[] = {"opening", "up", "closing", "down"};
  const Phase phase = phase_.load();
  return fmt::format(R"({{"channel": {}, "phase": "{}", "process": {}, "known_regions": {}, )"
                     R"("reaches": "{}"}})",
                     id_, kNames[static_cast<int>(phase)], phase == Phase::kUp ? remote_.pid : 0, remote_.map.size(),
                     phase != Phase::kUp    ? "nothing"
                     : remote_.foreign.ok() ? "all host memory"
                                            : "pool memory");
}

}  // namespace tidewire::transport::shm
