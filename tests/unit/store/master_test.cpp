// SPDX-License-Identifier: Apache-2.0
//
// The master with owners that answer when the test says so. Names of faults are those that the simulator found.
#include "store/master/master.h"

#include <gtest/gtest.h>

#include "unit/store/fake_owner.h"

namespace tidewire::store {
namespace {

using testing::Bench;
using testing::id_of;

constexpr ConnectionId kA = 1, kB = 2, kClient = 3;

struct Two {
  Bench bench;
  Bench::Owner a{1, {}}, b{2, {}}, client{3, {}, 0, 0};
  Two() {
    bench.attach(a, kA);
    bench.attach(b, kB);
    bench.attach(client, kClient);
    bench.live(2 * kSecond, {&a, &b});
  }
  Bench::Owner& owner_of(const PutPlace& put) { return put.places[0].segment.owner == id_of(1) ? a : b; }
  void put(const std::string& key, bool upsert = false) {
    const PutPlace place = bench.start_put(kClient, key, 100, upsert);
    ASSERT_EQ(place.code, Code::kOk);
    bench.end_put(kClient, key, place.version);
    bench.serve(a);
    bench.serve(b);
    const auto answer = bench.take<CodesAnswer>(kClient);
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->codes[0], Code::kOk);
  }
};

TEST(Master, AcknowledgesAPutOnceItsOwnerHasRecordedIt) {
  Two two;
  const PutPlace place = two.bench.start_put(kClient, "k", 100);
  ASSERT_EQ(place.code, Code::kOk);
  EXPECT_EQ(two.bench.get(kClient, "k").code, Code::kNotFound);
  two.bench.end_put(kClient, "k", place.version);
  EXPECT_FALSE(two.bench.take<CodesAnswer>(kClient));
  EXPECT_EQ(two.bench.get(kClient, "k").code, Code::kNotFound);
  two.bench.serve(two.owner_of(place));
  const auto answer = two.bench.take<CodesAnswer>(kClient);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->codes[0], Code::kOk);
  EXPECT_EQ(two.bench.get(kClient, "k").code, Code::kOk);
}

TEST(Master, APutOfACompleteKeyStoresNothing) {
  Two two;
  two.put("k");
  EXPECT_EQ(two.bench.start_put(kClient, "k", 100).code, Code::kExists);
}

TEST(Master, RefusesLateDoubleAndForeignEndsByTheirToken) {
  Two two;
  const PutPlace place = two.bench.start_put(kClient, "k", 100);
  two.bench.ask(kA, PutEnd{{{"k", place.version}}, {0}, {1}});
  EXPECT_EQ(two.bench.take<CodesAnswer>(kA)->codes[0], Code::kIllegalClient);
  two.bench.end_put(kClient, "k", place.version);
  two.bench.end_put(kClient, "k", place.version);
  EXPECT_EQ(two.bench.take<CodesAnswer>(kClient)->codes[0], Code::kInvalidWrite);
  two.bench.serve(two.owner_of(place));
  EXPECT_EQ(two.bench.take<CodesAnswer>(kClient)->codes[0], Code::kOk);
}

TEST(Master, RemovesUnderAReadersLeaseOnlyByForceAndKeepsTheSpaceUntilItEnds) {
  Two two;
  two.put("k");
  two.bench.get(kClient, "k");
  two.bench.ask(kClient, Remove{{"k"}, false});
  EXPECT_EQ(two.bench.take<CodesAnswer>(kClient)->codes[0], Code::kHasLease);
  two.bench.ask(kClient, Remove{{"k"}, true});
  two.bench.serve(two.a);
  two.bench.serve(two.b);
  EXPECT_EQ(two.bench.take<CodesAnswer>(kClient)->codes[0], Code::kOk);
  const auto used = [&] {
    uint64_t sum = 0;
    for (const Master::SegmentView& segment : two.bench.master->segments()) sum += segment.used;
    return sum;
  };
  EXPECT_GT(used(), 0u);
  two.bench.live(11 * kSecond, {&two.a, &two.b});
  EXPECT_EQ(used(), 0u);
}

TEST(Master, ASilentWritersSpaceIsFreeOnlyOnceItsOwnerHasConfirmedQuiet) {
  Two two;
  const PutPlace place = two.bench.start_put(kClient, "k", 100);
  Bench::Owner& owner = two.owner_of(place);
  two.bench.pass(2 * kSecond + 100 * kMillisecond);
  uint64_t request = 0;
  ASSERT_TRUE(two.bench.take<Quiet>(owner.connection, &request));
  EXPECT_GT(two.bench.master->segments()[owner.number - 1].used, 0u);
  two.bench.reply(owner.connection, request, CodeAnswer{Code::kOk});
  EXPECT_EQ(two.bench.master->segments()[owner.number - 1].used, 0u);
}

// Fault: after a crash between the two, the older version came back although the newer was acknowledged.
TEST(Master, AcknowledgesAnUpsertOnceTheVersionBeforeIsDropped) {
  Two two;
  two.put("k");
  const PutPlace place = two.bench.start_put(kClient, "k", 100, true);
  two.bench.end_put(kClient, "k", place.version);
  uint64_t request = 0;
  const ConnectionId owner = two.owner_of(place).connection;
  const auto record = two.bench.take<Record>(owner, &request);
  ASSERT_TRUE(record);
  two.bench.reply(owner, request, two.owner_of(place).inventory.on_record(*record));
  EXPECT_FALSE(two.bench.take<CodesAnswer>(kClient));
  two.bench.serve(two.a);
  two.bench.serve(two.b);
  EXPECT_EQ(two.bench.take<CodesAnswer>(kClient)->codes[0], Code::kOk);
}

// Fault: two masters of equal terms drew equal versions, and owners obeyed both.
TEST(Master, GoesAboveTheTermOfAnotherMasterEvenWhenItsOwnIdIsHigher) {
  Bench bench;
  Bench::Owner owner{1, {}};
  owner.inventory.on_grant({1, id_of(5), 0, 4 * kSecond}, bench.now);
  bench.attach(owner, kA);
  EXPECT_GT(bench.master->term(), 1u);
}

// Fault: a former master led readers to owners that obeyed its successor, which gave out the space.
TEST(Master, LeadsNoReadersToAnOwnerWhoseGrantHasRunOut) {
  Two two;
  two.put("k");
  const bool at_a = two.a.inventory.size() > 0;
  Bench::Owner& other = at_a ? two.b : two.a;
  two.bench.master->on_closed(at_a ? kA : kB, two.bench.now);
  EXPECT_EQ(two.bench.get(kClient, "k").code, Code::kOk);
  two.bench.live(5 * kSecond, {&other});
  EXPECT_EQ(two.bench.get(kClient, "k").code, Code::kReplicaGone);
}

// Fault: a failed attempt's tombstone condemned the older, complete version.
TEST(Master, ATombstoneCondemnsNoOtherVersion) {
  Two two;
  two.put("k");
  Bench::Owner& owner = two.a.inventory.size() > 0 ? two.a : two.b;
  const Version version = owner.inventory.find("k")->version;
  JournalState state = two.bench.journal.state;
  state.apply({JournalRecord::Kind::kTombstone, version + 1, id_of(owner.number), "k"});
  Bench next(101, state);
  next.attach(owner, kA);
  EXPECT_EQ(next.master->look("k").code, Code::kOk);
}

// Fault: an owner without objects but with ranges under leases was taken for empty.
TEST(Master, AsksAnOwnerOfAnotherMasterForItsRangesUnderLeases) {
  Two two;
  two.put("k");
  Bench::Owner& owner = two.a.inventory.size() > 0 ? two.a : two.b;
  two.bench.get(kClient, "k");
  two.bench.ask(kClient, Remove{{"k"}, true});
  two.bench.serve(owner);
  Bench next(101, two.bench.journal.state);
  next.attach(owner, kA);
  EXPECT_EQ(next.attached->inventory, InventoryWish::kSend);
  EXPECT_GT(next.master->segments()[0].used, 0u);
}

// Fault: bytes of writers of the master before landed in space that was given out again.
TEST(Master, GivesOutNoSpaceOfAnotherMastersOwnerBeforeItIsQuiet) {
  Two two;
  Bench next(101, two.bench.journal.state);
  Bench::Owner client{3, {}, 0, 0};
  next.attach(two.a, kA);
  next.attach(client, kClient);
  next.master->on_message(kA, {1, false, Heartbeat{}}, next.now);
  uint64_t request = 0;
  std::unique_ptr<Quiet> quiet;
  for (int i = 0; i < 200 && !quiet; ++i) {
    next.pass(100 * kMillisecond);
    next.ask(kA, Heartbeat{});
    next.serve(two.a, true);
    quiet = next.take<Quiet>(kA, &request);
    if (!quiet) {
      EXPECT_NE(next.start_put(kClient, "k", 100).code, Code::kOk);
    }
  }
  ASSERT_TRUE(quiet);
  EXPECT_EQ(quiet->writer, ClientId{});
}

// Fault: an outdated entry of an owner that was lost before it had dropped it ended the master.
TEST(Master, SurvivesTheLossOfAnOwnerThatHasOutdatedEntriesToDrop) {
  Two two;
  two.put("k");
  Bench::Owner& owner = two.a.inventory.size() > 0 ? two.a : two.b;
  JournalState state = two.bench.journal.state;
  state.apply({JournalRecord::Kind::kTombstone, owner.inventory.find("k")->version, id_of(owner.number), "k"});
  Bench after(102, state);
  Attach attach{id_of(owner.number), "host:1", "host"};
  attach.term = owner.inventory.term();
  attach.master = owner.inventory.master();
  attach.entries = 1;
  attach.segments.push_back({0, "host:1", 1 << 30, 1 << 20});
  after.ask(kA, attach);
  Inventory::Cursor cursor;
  after.ask(kA, owner.inventory.next_chunk(&cursor, after.now));
  after.master->on_closed(kA, after.now);
  EXPECT_EQ(after.master->look("k").code, Code::kNotFound);
}

// It could displace what another master has put there meanwhile.
TEST(Master, ARecordThatALostOwnerDidNotAnswerIsNotSentAgain) {
  Two two;
  const PutPlace place = two.bench.start_put(kClient, "k", 100);
  two.bench.end_put(kClient, "k", place.version);
  Bench::Owner& owner = two.owner_of(place);
  const ConnectionId connection = &owner == &two.a ? kA : kB;
  ASSERT_TRUE(two.bench.take<Record>(connection));
  two.bench.master->on_closed(connection, two.bench.now);
  constexpr ConnectionId kAgain = 9;
  two.bench.attach(owner, kAgain);
  EXPECT_FALSE(two.bench.take<Record>(kAgain));
  EXPECT_EQ(two.bench.get(kClient, "k").code, Code::kNotFound);
}

TEST(Master, APutReplacesAnObjectWhoseOwnersAreAllLost) {
  Two two;
  const PutPlace first = two.bench.start_put(kClient, "k", 100);
  two.bench.end_put(kClient, "k", first.version);
  two.bench.serve(two.owner_of(first));
  EXPECT_EQ(two.bench.start_put(kClient, "k", 100).code, Code::kExists);
  two.bench.master->on_closed(&two.owner_of(first) == &two.a ? kA : kB, two.bench.now);
  EXPECT_EQ(two.bench.start_put(kClient, "k", 100).code, Code::kOk);
}

TEST(Master, APatternThatWouldTryEverythingEndsSoon) {
  Two two;
  two.put(std::string(kMaxKeyBytes, 'a'));
  two.bench.ask(kClient, RemoveMatching{"(a+)+b", true});
  EXPECT_EQ(two.bench.take<CountAnswer>(kClient)->count, 0u);
  two.bench.ask(kClient, RemoveMatching{"(a)\\1", true});
  EXPECT_EQ(two.bench.take<CountAnswer>(kClient)->code, Code::kInvalidParams);
}

TEST(Master, AFullStoreAnswersWithinTheBound) {
  Two two;
  two.bench.ask(kClient, PutStart{{"huge"}, {uint64_t{1} << 30}, {}, {}, false});
  two.bench.live(2 * kSecond, {&two.a, &two.b});
  const auto answer = two.bench.take<PutStartAnswer>(kClient);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->puts[0].code, Code::kNoSpace);
}

// Fault: one step after another of thousands of objects held up every reader for a tenth of a second.
TEST(Master, EvictsAheadOfNeedInSmallSteps) {
  Bench bench;
  Bench::Owner owner{1, {}, 0, 8 << 20}, client{3, {}, 0, 0};
  bench.attach(owner, kA);
  bench.attach(client, kClient);
  bench.live(2 * kSecond, {&owner});
  const auto used = [&] { return static_cast<double>(bench.master->segments()[0].used) / (8 << 20); };
  const auto objects = [&] { return bench.master->segments()[0].objects; };
  for (int i = 0; used() < 0.91; ++i) {
    const std::string key = "k" + std::to_string(i);
    const PutPlace place = bench.start_put(kClient, key, 1024);
    ASSERT_EQ(place.code, Code::kOk);
    bench.end_put(kClient, key, place.version);
    bench.serve(owner);
    ASSERT_TRUE(bench.take<CodesAnswer>(kClient));
  }
  const uint64_t full = objects();
  for (uint64_t before = full;;) {
    bench.now += kMillisecond;
    const bool more = bench.master->tick(bench.now) <= bench.now + kMillisecond;
    EXPECT_LE(before - objects(), 200u);
    before = objects();
    if (!more) break;
  }
  bench.live(200 * kMillisecond, {&owner});
  EXPECT_NEAR(used(), 0.85, 0.01);
  EXPECT_LT(objects(), full);
}

}  // namespace
}  // namespace tidewire::store
