// SPDX-License-Identifier: Apache-2.0
//
// The target's answers: acknowledgements, several in one call where several are ready, and the payloads of reads.
#include <algorithm>

#include "transport/tcp/target_lane.h"

namespace tidewire::transport::tcp {
namespace {

void append_ack(std::vector<uint8_t>& out, wire::Type type, uint64_t id, const Status& status) {
  wire::Header header;
  header.type = type;
  header.id = id;
  header.code = static_cast<uint32_t>(status.code());
  const size_t text = std::min<size_t>(status.message().size(), wire::kMaxText);
  header.count = static_cast<uint32_t>(text);
  const auto* bytes = reinterpret_cast<const uint8_t*>(status.message().data());
  header.body_check = wire::body_checksum(bytes, text);
  const size_t before = out.size();
  out.resize(before + wire::kHeaderBytes + text);
  wire::encode(header, out.data() + before);
  std::copy_n(bytes, text, out.data() + before + wire::kHeaderBytes);
}

}  // namespace

TargetLane::Answer& TargetLane::ack_entry() {
  if (answers_.empty() || answers_.back().is_data) answers_.emplace_back();
  return answers_.back();
}

void TargetLane::answer(wire::Type type, uint64_t id, const Status& status) {
  std::vector<uint8_t>& out = ack_entry().frame.head;
  const size_t before = out.size();
  append_ack(out, type, id, status);
  queued_bytes_ += out.size() - before;
}

void TargetLane::answer_read(const wire::Header& header, const uint8_t* table) {
  RangeHold hold;
  const Status refused = use_pieces(header, table, Access::kRemoteRead, hold);
  if (!refused.ok()) {
    answer(wire::Type::kAck, header.id, refused);
    return;
  }
  Answer& data = answers_.emplace_back();
  data.is_data = true;
  data.slice = header.id;
  data.hold = std::move(hold);
  data.table.assign(table, table + header.body_bytes());
  data.frame.payload =
      MemoryCursor(PieceView::of_table(data.table.data(), header.count), data.hold, header.payload_bytes);
  wire::Header head;
  head.type = wire::Type::kData;
  head.id = header.id;
  head.payload_bytes = header.payload_bytes;
  data.frame.head.resize(wire::kHeaderBytes);
  wire::encode(head, data.frame.head.data());
  append_ack(data.frame.tail, wire::Type::kAck, header.id, Status());
  queued_bytes_ += data.table.size() + 2 * wire::kHeaderBytes;
}

// The read's region went away. Nothing sent yet: refused. Otherwise the promised bytes are filled up with zeros, and
// the ack says what they are worth.
void TargetLane::cut_data(Answer& data, const Status& why) {
  data.frame.tail.clear();
  if (data.frame.sent == 0) {
    data.frame.head.clear();
  } else {
    data.frame.tail.resize(data.frame.payload.remaining());
  }
  data.frame.payload = MemoryCursor();
  append_ack(data.frame.tail, wire::Type::kAck, data.slice, why);
  data.hold.release();
}

void TargetLane::flush() {
  // What one call may send before other lanes of the thread have their turn.
  constexpr uint64_t kSendBudget = 8 << 20;
  uint64_t total = 0;
  blocked_ = false;
  while (!answers_.empty()) {
    Answer& front = answers_.front();
    uint64_t sent = 0;
    Status why;
    const SendOutcome outcome =
        front.frame.done() ? SendOutcome::kMore : send_once(fd_.get(), front.frame, staged_, kSendBudget, answers_.size() > 1, sent, why);
    bytes_out_.fetch_add(sent, std::memory_order_relaxed);
    total += sent;
    if (outcome == SendOutcome::kFull) {
      blocked_ = true;
      break;
    }
    if (outcome == SendOutcome::kCut) {
      cut_data(front, why);
    } else if (outcome == SendOutcome::kFailed) {
      // The receiving side hears of it too and ends the lane: not here, where a frame is perhaps being parsed.
      staged_.reset();
      answers_.clear();
      queued_bytes_ = 0;
      break;
    }
    if (!front.frame.done()) {
      if (total < kSendBudget) continue;
      blocked_ = true;
      break;
    }
    queued_bytes_ -= std::min(queued_bytes_,
                              front.frame.head.size() + front.table.size() + (front.is_data ? wire::kHeaderBytes : 0));
    if (answers_.size() == 1 && !front.is_data) {
      // Keep the buffer for the next acks.
      front.frame.head.clear();
      front.frame.head_sent = 0;
      front.frame.sent = 0;
      queued_bytes_ = 0;
      break;
    }
    answers_.pop_front();
  }
  update_interest();
}

}  // namespace tidewire::transport::tcp
