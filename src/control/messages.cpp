// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <algorithm>
#include <cstring>

#include "control/wire.h"

namespace tidewire::control {

using wire::finish;
using wire::verified;

Code code_from_wire(uint32_t code) {
  return code <= static_cast<uint32_t>(Code::kInternal) ? static_cast<Code>(code) : Code::kInternal;
}

std::string bounded_text(std::string_view text, size_t limit) {
  std::string out(text.substr(0, limit));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

Bytes encode_record(uint64_t request, const PeerRecord& record) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::Rail>> rails;
  for (const RailRecord& rail : record.rails)
    rails.push_back(fb::CreateRail(builder, builder.CreateString(rail.transport), builder.CreateString(rail.name),
                                   builder.CreateString(rail.address), rail.bits_per_second));
  auto instance = builder.CreateVector(record.instance.data(), record.instance.size());
  auto name = builder.CreateString(record.name);
  auto host = builder.CreateString(record.host_id);
  auto socket = builder.CreateString(record.same_host_socket);
  auto rail_list = builder.CreateVector(rails);
  return finish(builder,
                fb::CreateRecord(builder, record.protocol_version, record.features, instance, name, host, socket,
                                 record.process_id, rail_list),
                FrameType::kRecord, request);
}

Bytes encode_notification(uint64_t request, const NotificationMessage& notification) {
  flatbuffers::FlatBufferBuilder builder(notification.message.size() + notification.name.size() + 128);
  auto name = builder.CreateString(notification.name);
  auto message =
      builder.CreateVector(reinterpret_cast<const uint8_t*>(notification.message.data()), notification.message.size());
  return finish(builder, fb::CreateNotification(builder, notification.stream, notification.sequence, name, message),
                FrameType::kNotification, request);
}

Bytes encode_outcome(FrameType type, uint64_t request, const Status& outcome) {
  flatbuffers::FlatBufferBuilder builder;
  auto reason = builder.CreateString(bounded_text(outcome.message(), kMaxReasonBytes));
  return finish(builder, fb::CreateOutcome(builder, static_cast<uint32_t>(outcome.code()), reason), type, request);
}

Bytes encode_first_region(uint64_t request, const RegionMessage& region) {
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, fb::CreateFirstRegion(builder, region.address, region.length), FrameType::kFirstRegion,
                request);
}

Bytes encode_goodbye(bool closing) {
  flatbuffers::FlatBufferBuilder builder;
  return finish(builder, fb::CreateGoodbye(builder, closing), FrameType::kGoodbye, 0);
}

Result<PeerRecord> decode_record(ByteSpan payload) {
  const auto* table = verified<fb::Record>(payload);
  if (table == nullptr) return wire::malformed("record");
  PeerRecord record;
  record.protocol_version = table->protocol_version();
  record.features = table->features();
  record.process_id = table->process_id();
  if (!wire::read_id(table->instance(), &record.instance) ||
      !wire::read_text(table->name(), kMaxNameBytes, &record.name) ||
      !wire::read_text(table->host_id(), kMaxNameBytes, &record.host_id) ||
      !wire::read_text(table->same_host_socket(), kMaxNameBytes, &record.same_host_socket))
    return wire::malformed("record");
  if (table->rails() == nullptr) return record;
  if (table->rails()->size() > kMaxRails) return wire::malformed("record");
  for (const fb::Rail* rail : *table->rails()) {
    RailRecord out;
    out.bits_per_second = rail->bits_per_second();
    if (!wire::read_text(rail->transport(), kMaxNameBytes, &out.transport) ||
        !wire::read_text(rail->name(), kMaxNameBytes, &out.name) ||
        !wire::read_text(rail->address(), kMaxNameBytes, &out.address))
      return wire::malformed("record");
    record.rails.push_back(std::move(out));
  }
  return record;
}

Result<NotificationMessage> decode_notification(ByteSpan payload) {
  const auto* table = verified<fb::Notification>(payload);
  if (table == nullptr) return wire::malformed("notification");
  NotificationMessage out;
  out.stream = table->stream();
  out.sequence = table->sequence();
  if (out.sequence == 0 || !wire::read_text(table->name(), kMaxNotificationNameBytes, &out.name))
    return wire::malformed("notification");
  if (const auto* message = table->message()) {
    if (message->size() > kMaxNotificationBytes) return wire::malformed("notification");
    out.message.assign(reinterpret_cast<const char*>(message->data()), message->size());
  }
  return out;
}

Status decode_outcome(ByteSpan payload) {
  const auto* table = verified<fb::Outcome>(payload);
  std::string reason;
  if (table == nullptr || !wire::read_text(table->reason(), kMaxReasonBytes, &reason)) return wire::malformed("answer");
  return Status(code_from_wire(table->code()), bounded_text(reason, kMaxReasonBytes));
}

Result<RegionMessage> decode_first_region(ByteSpan payload) {
  const auto* table = verified<fb::FirstRegion>(payload);
  if (table == nullptr) return wire::malformed("first region");
  return RegionMessage{table->address(), table->length()};
}

Result<bool> decode_goodbye(ByteSpan payload) {
  const auto* table = verified<fb::Goodbye>(payload);
  if (table == nullptr) return wire::malformed("goodbye");
  return table->closing();
}

}  // namespace tidewire::control
