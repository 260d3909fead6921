// SPDX-License-Identifier: Apache-2.0
#include "store/rpc/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/messages_generated.h"
#include "unit/store/random_messages.h"

namespace tidewire::store {
namespace {

using testing::for_each_body;
using testing::frame_of;
using ::testing::HasSubstr;
using testing::Random;
using testing::same;

std::vector<std::string> keys(size_t count, size_t bytes = 64) {
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back("key-" + std::to_string(i) + "-");
    out.back().resize(bytes, 'k');
  }
  return out;
}

Result<Message> round_trip(const Message& message) {
  const std::vector<uint8_t> bytes = encode(message);
  if (bytes.empty()) return Status(tidewire::Code::kInvalidArgument, "not encodable");
  return decode(frame_of(bytes));
}

// The frame of a table that our encoder would not make.
template <typename Table>
control::Frame forge(size_t index, flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<Table> root) {
  builder.Finish(root);
  control::Frame frame;
  frame.type = static_cast<control::FrameType>(kFirstStoreFrame + index);
  frame.payload.assign(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
  return frame;
}
template <typename Struct>
size_t index_of() {
  return Body(Struct{}).index();
}

flatbuffers::Offset<fb::Texts> texts(flatbuffers::FlatBufferBuilder& builder, const std::string& bytes,
                                     const std::vector<uint16_t>& lengths) {
  const auto text = builder.CreateVector(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const auto column = builder.CreateVector(lengths);
  return fb::CreateTexts(builder, text, column);
}

void expect_malformed(const control::Frame& frame, const std::string& name) {
  const Result<Message> message = decode(frame);
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.status().code(), tidewire::Code::kProtocol);
  EXPECT_THAT(message.status().message(), HasSubstr("malformed " + name));
}

TEST(Codec, EveryMessageArrivesAsItWasSent) {
  Random random(1);
  for_each_body([&](auto index) {
    for (int round = 0; round < 100; ++round) {
      const Message message = random.message<index()>();
      const Result<Message> arrived = round_trip(message);
      ASSERT_TRUE(arrived.ok()) << message_name(message.body) << ": " << arrived.status().to_string();
      EXPECT_TRUE(same(message, *arrived)) << message_name(message.body);
    }
  });
}

TEST(Codec, EveryMessageArrivesWithNothingInIt) {
  for_each_body([&](auto index) {
    Message message;
    message.body.emplace<index()>();
    const Result<Message> arrived = round_trip(message);
    ASSERT_TRUE(arrived.ok()) << message_name(message.body);
    EXPECT_TRUE(same(message, *arrived)) << message_name(message.body);
  });
}

TEST(Codec, TheFrameSaysWhichMessageItIsAndWhetherItAnswers) {
  const control::Frame ask = frame_of(encode({7, false, Attach{}}));
  EXPECT_EQ(static_cast<int>(ask.type), 64);
  EXPECT_EQ(ask.request, 7u);
  const control::Frame answer = frame_of(encode({8, true, Quiet{}}));
  EXPECT_EQ(static_cast<int>(answer.type), 64 + 26 + 128);
  EXPECT_STREQ(message_name(Attach{}), "Attach");
  EXPECT_STREQ(message_name(GetAnswer{}), "GetAnswer");
  EXPECT_STREQ(message_name(RemoveMatching{}), "RemoveMatching");
  EXPECT_STREQ(message_name(Quiet{}), "Quiet");
}

TEST(Codec, LargestBatchesArrive) {
  Random random(2);
  PutStart put;
  put.keys = keys(kMaxBatch);
  put.sizes.assign(kMaxBatch, 1);
  put.options.resize(kMaxBatch);
  for (PutOptions& options : put.options) options.preferred_segments = {"a:1", "b:2"};
  put.groups = keys(kMaxBatch);
  GetAnswer get;
  get.gets.resize(kMaxBatch);
  for (GetPlace& place : get.gets) {
    place.places.resize(kMaxReplicas);
    for (Place& one : place.places) random.fill(one);  // every place in a segment of its own
  }
  Record record;
  record.entries.resize(kMaxBatch);
  for (InventoryEntry& entry : record.entries) random.fill(entry);
  for (const Message& message : {Message{1, false, put}, Message{2, true, get}, Message{3, false, record}}) {
    const Result<Message> arrived = round_trip(message);
    ASSERT_TRUE(arrived.ok()) << arrived.status().to_string();
    EXPECT_TRUE(same(message, *arrived));
  }
}

TEST(Codec, GroupsThatAreEmptyStayApartFromNoGroups) {
  PutStart put;
  put.keys = {"a", "b"};
  put.sizes = {1, 2};
  put.options.resize(1);
  for (const std::vector<std::string>& groups : {std::vector<std::string>{}, {"", ""}, {"g", ""}}) {
    put.groups = groups;
    const Result<Message> arrived = round_trip({1, false, put});
    ASSERT_TRUE(arrived.ok());
    EXPECT_EQ(std::get<PutStart>(arrived->body).groups, groups);
  }
}

TEST(Codec, EndpointsOfAnAnswerTravelOnce) {
  GetAnswer answer;
  answer.gets.resize(1'000);
  for (GetPlace& get : answer.gets) get.places = {{{ClientId{1}, 2}, std::string(200, 'e'), 3}};
  // A row of 32 bytes, an index and an address for each key.
  EXPECT_LT(encode({1, true, answer}).size(), 1'000u * (32 + 4 + 8) + 600);
}

TEST(Codec, WhatTheOtherSideWouldRefuseIsNotSent) {
  const auto sendable = [](const Body& body) { return !encode({1, false, body}).empty(); };
  EXPECT_TRUE(sendable(Get{keys(kMaxBatch)}));
  EXPECT_FALSE(sendable(Get{keys(kMaxBatch + 1)}));
  EXPECT_TRUE(sendable(Exists{keys(3, kMaxKeyBytes)}));
  EXPECT_FALSE(sendable(Exists{keys(3, kMaxKeyBytes + 1)}));
  EXPECT_FALSE(sendable(Remove{keys(kMaxBatch, kMaxKeyBytes)})) << "a frame of 40 MB";
  EXPECT_FALSE(sendable(RemoveMatching{std::string(kMaxKeyBytes + 1, 'r')}));
  EXPECT_FALSE(sendable(CodesAnswer{std::vector<Code>(kMaxBatch + 1)}));

  PutStart put{keys(2), {1, 2}, {PutOptions{}}, {}};
  EXPECT_TRUE(sendable(put));
  put.options.resize(3);
  EXPECT_FALSE(sendable(put));
  put.options.resize(2);
  put.options[1].preferred_segments.resize(kMaxPreferred + 1);
  EXPECT_FALSE(sendable(put));
  put.options[1].preferred_segments.resize(kMaxPreferred);
  EXPECT_TRUE(sendable(put));
  put.sizes.pop_back();
  EXPECT_FALSE(sendable(put));
  put.sizes.push_back(2);
  put.groups = {"only one"};
  EXPECT_FALSE(sendable(put));

  EXPECT_FALSE(sendable(PutEnd{{{"a", 1}}, {1}, {}}));
  EXPECT_FALSE(sendable(Drop{1, 1, {{"a", 1}}, {1, 2}}));
  GetAnswer get{1, {GetPlace{}}};
  get.gets[0].places.resize(kMaxReplicas + 1);
  EXPECT_FALSE(sendable(get));
  Attach attach;
  attach.name.resize(control::kMaxNameBytes + 1);
  EXPECT_FALSE(sendable(attach));
}

TEST(Codec, UnknownMessagesAreToldApartFromFramesOfTheControlPlane) {
  control::Frame frame;
  frame.type = control::FrameType::kProbe;
  EXPECT_EQ(decode(frame).status().code(), tidewire::Code::kProtocol);
  for (const size_t index : {std::variant_size_v<Body>, size_t{63}})
    for (const int answer : {0, 128}) {
      frame.type = static_cast<control::FrameType>(kFirstStoreFrame + index + answer);
      EXPECT_EQ(decode(frame).status().code(), tidewire::Code::kUnsupported);
    }
}

TEST(Codec, NoTruncatedOrShakenMessageDoesHarm) {
  Random random(3);
  size_t refused = 0;
  for_each_body([&](auto index) {
    for (int round = 0; round < 5; ++round) {
      const Message message = random.message<index()>();
      const control::Frame good = frame_of(encode(message));
      const auto try_one = [&](const control::Frame& frame) {
        const Result<Message> arrived = decode(frame);
        if (arrived.ok()) {
          // What is taken is within the bounds, so that it could be sent on.
          EXPECT_FALSE(encode(*arrived).empty()) << message_name(message.body);
        } else {
          ++refused;
          EXPECT_EQ(arrived.status().code(), tidewire::Code::kProtocol);
          EXPECT_THAT(arrived.status().message(), HasSubstr(message_name(message.body)));
        }
      };
      for (int cut = 0; cut < 50; ++cut) {
        control::Frame frame = good;
        frame.payload.resize(random.below(good.payload.size()));
        try_one(frame);
      }
      for (int shake = 0; shake < 200; ++shake) {
        control::Frame frame = good;
        for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
          // Offsets and counts stand in the first and last bytes as well as in between.
          uint8_t& byte = frame.payload[random.below(2) == 0 ? random.below(std::min<size_t>(frame.payload.size(), 128))
                                                             : random.below(frame.payload.size())];
          byte = static_cast<uint8_t>(random.below(3) == 0 ? random.number() : byte ^ 1u << random.below(8));
        }
        try_one(frame);
      }
    }
  });
  EXPECT_GT(refused, 0u);
}

TEST(Codec, AnEmptyPayloadIsMalformed) {
  control::Frame frame;
  frame.type = static_cast<control::FrameType>(kFirstStoreFrame + index_of<Heartbeat>());
  expect_malformed(frame, "Heartbeat");
}

TEST(Codec, ListsBeyondTheBoundsAreRefused) {
  flatbuffers::FlatBufferBuilder builder;
  expect_malformed(forge(index_of<Get>(), builder,
                         fb::CreateGet(builder, texts(builder, "", std::vector<uint16_t>(kMaxBatch + 1, 0)))),
                   "Get");
  builder.Clear();
  expect_malformed(
      forge(index_of<Get>(), builder,
            fb::CreateGet(builder, texts(builder, std::string(kMaxKeyBytes + 1, 'k'), {kMaxKeyBytes + 1}))),
      "Get");
  builder.Clear();
  const auto codes = builder.CreateVector(std::vector<int32_t>(kMaxBatch + 1, 0));
  expect_malformed(forge(index_of<CodesAnswer>(), builder, fb::CreateCodesAnswer(builder, codes)), "CodesAnswer");
}

TEST(Codec, TextsMustAddUp) {
  for (const std::vector<uint16_t>& lengths : {std::vector<uint16_t>{2}, {3, 2}, {4, 65'535}}) {
    flatbuffers::FlatBufferBuilder builder;
    expect_malformed(forge(index_of<Exists>(), builder, fb::CreateExists(builder, texts(builder, "four", lengths))),
                     "Exists");
  }
  flatbuffers::FlatBufferBuilder builder;
  const auto column = builder.CreateVector(std::vector<uint16_t>{4});
  expect_malformed(forge(index_of<Exists>(), builder, fb::CreateExists(builder, fb::CreateTexts(builder, 0, column))),
                   "Exists");
}

// GetAnswer with one row that claims `claimed` places, while one place is there whose segment is `segment` of one.
control::Frame forged_places(uint32_t claimed, uint32_t segment, size_t indexes = 1) {
  flatbuffers::FlatBufferBuilder builder;
  const fb::SegmentOfPlaces row;
  const auto segments = builder.CreateVectorOfStructs(&row, 1);
  const auto endpoints = texts(builder, "a:1", {3});
  const auto index = builder.CreateVector(std::vector<uint32_t>(indexes, segment));
  const auto addresses = builder.CreateVector(std::vector<uint64_t>{5});
  const auto places = fb::CreatePlaces(builder, segments, endpoints, index, addresses);
  const fb::GetRow get(1, 2, 3, 0, claimed);
  const auto gets = builder.CreateVectorOfStructs(&get, 1);
  return forge(index_of<GetAnswer>(), builder, fb::CreateGetAnswer(builder, 9, gets, places));
}

TEST(Codec, PlacesMustAddUp) {
  EXPECT_TRUE(decode(forged_places(1, 0)).ok());
  expect_malformed(forged_places(2, 0), "GetAnswer");
  expect_malformed(forged_places(0, 0), "GetAnswer");
  expect_malformed(forged_places(UINT32_MAX, 0), "GetAnswer");
  expect_malformed(forged_places(1, 1), "GetAnswer");
  expect_malformed(forged_places(1, UINT32_MAX), "GetAnswer");
  expect_malformed(forged_places(1, 0, 2), "GetAnswer");
  expect_malformed(forged_places(1, 0, 0), "GetAnswer");
}

// PutStart of one key, with so many sizes, option rows and groups.
control::Frame forged_put(size_t sizes, size_t options, size_t groups, uint8_t soft_pin = 0, uint32_t claimed = 0,
                          std::vector<uint32_t> preferred = {}) {
  flatbuffers::FlatBufferBuilder builder;
  const auto keys = texts(builder, "key", {3});
  const auto size_column = builder.CreateVector(std::vector<uint64_t>(sizes, 1));
  const std::vector<fb::OptionsRow> row_list(options, fb::OptionsRow(0, 1, claimed, soft_pin, 0, false, false));
  const auto rows = builder.CreateVectorOfStructs(row_list);
  const auto index = builder.CreateVector(preferred);
  const auto names = texts(builder, "a:1", {3});
  const auto list = fb::CreatePutOptionsList(builder, rows, index, names);
  const auto group_texts = groups == 0 ? 0 : texts(builder, "", std::vector<uint16_t>(groups, 0));
  return forge(index_of<PutStart>(), builder, fb::CreatePutStart(builder, keys, size_column, list, group_texts));
}

TEST(Codec, ListsThatBelongTogetherHaveOneLength) {
  EXPECT_TRUE(decode(forged_put(1, 1, 1, 2, 1, {0})).ok());
  expect_malformed(forged_put(0, 1, 0), "PutStart");
  expect_malformed(forged_put(2, 1, 0), "PutStart");
  expect_malformed(forged_put(1, 0, 0), "PutStart");
  expect_malformed(forged_put(1, 2, 0), "PutStart");
  expect_malformed(forged_put(1, 1, 2), "PutStart");
}

TEST(Codec, OptionsAreChecked) {
  expect_malformed(forged_put(1, 1, 0, 3), "PutStart");
  expect_malformed(forged_put(1, 1, 0, 0, 1, {}), "PutStart");
  expect_malformed(forged_put(1, 1, 0, 0, 0, {0}), "PutStart");
  expect_malformed(forged_put(1, 1, 0, 0, 1, {1}), "PutStart");
  expect_malformed(forged_put(1, 1, 0, 0, kMaxPreferred + 1, std::vector<uint32_t>(kMaxPreferred + 1, 0)), "PutStart");
}

TEST(Codec, AMountWithoutASegmentIsMalformed) {
  flatbuffers::FlatBufferBuilder builder;
  expect_malformed(forge(index_of<Mount>(), builder, fb::CreateMount(builder)), "Mount");
}

TEST(Codec, AnUnknownWishIsMalformed) {
  flatbuffers::FlatBufferBuilder builder;
  expect_malformed(forge(index_of<AttachAnswer>(), builder, fb::CreateAttachAnswer(builder, 0, 1, nullptr, 1, 3)),
                   "AttachAnswer");
}

}  // namespace
}  // namespace tidewire::store
