// SPDX-License-Identifier: Apache-2.0
#include "store/master/file_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tidewire::store {
namespace {

using ::testing::HasSubstr;
using Kind = JournalRecord::Kind;
using StatusCode = tidewire::Code;
namespace fs = std::filesystem;

ClientId client(uint8_t number) {
  ClientId id{};
  id[0] = number;
  return id;
}

// What a state is, to compare.
std::string text_of(const JournalState& state) {
  std::string text = fmt::format("fresh {} term {} generation {}", state.fresh, state.term, state.generation);
  for (const auto& [id, member] : state.members) {
    text += fmt::format("; {} {} {}", to_string(id), member.name, member.gone);
    for (const auto& [key, versions] : member.tombstones) text += fmt::format(" {}={}", key, fmt::join(versions, ","));
  }
  return text;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class FileJournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tidewire-journal-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<FileJournal> open() {
    auto journal = FileJournal::open(folder_);
    if (journal.ok()) return std::move(*journal);
    ADD_FAILURE() << journal.status().to_string();
    std::abort();
  }
  std::string state() { return text_of(open()->load()); }
  fs::path file() const { return fs::path(folder_) / "journal"; }
  size_t set_aside() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_))
      count += entry.path().filename().string().starts_with("journal.bad-");
    return count;
  }

  std::string folder_;
};

// Appends that say something different each, and what the state is after each of them.
const std::vector<std::vector<JournalRecord>> kAppends = {
    {{Kind::kTerm, 1, {}, {}}},
    {{Kind::kMember, 0, client(1), "10.0.0.1:5000"}, {Kind::kMember, 0, client(2), "10.0.0.2:5000"}},
    {{Kind::kGeneration, 4, {}, {}},
     {Kind::kTombstone, 77, client(1), "a key"},
     {Kind::kTombstone, 78, client(1), std::string("\0x", 2)}},
    {{Kind::kGone, 0, client(2), {}}},
    {{Kind::kForgot, 0, client(1), {}}, {Kind::kTerm, 9, {}, {}}},
};

TEST_F(FileJournalTest, AnEmptyFolderIsAFreshStart) {
  EXPECT_TRUE(open()->load().fresh);
  EXPECT_EQ(set_aside(), 0u);
}

TEST_F(FileJournalTest, WhatWasAppendedIsThereAgain) {
  JournalState expected;
  {
    const auto journal = open();
    for (const auto& records : kAppends) {
      ASSERT_TRUE(journal->append(records).ok());
      for (const JournalRecord& record : records) expected.apply(record);
    }
  }
  EXPECT_EQ(state(), text_of(expected));
  ASSERT_TRUE(open()->append({{Kind::kTerm, 12, {}, {}}}).ok());
  expected.apply({Kind::kTerm, 12, {}, {}});
  EXPECT_EQ(state(), text_of(expected));
}

TEST_F(FileJournalTest, AJournalCutAtAnyLengthIsTheSumOfItsWholeAppends) {
  std::vector<size_t> ends;       // of the file after each append
  std::vector<std::string> sums;  // the state then
  {
    const auto journal = open();
    JournalState sum;
    for (const auto& records : kAppends) {
      ASSERT_TRUE(journal->append(records).ok());
      for (const JournalRecord& record : records) sum.apply(record);
      ends.push_back(fs::file_size(file()));
      sums.push_back(text_of(sum));
    }
  }
  const std::string whole = read_file(file());
  ASSERT_EQ(ends.back(), whole.size());
  constexpr size_t kHeader = 16;
  const std::string fresh = text_of(JournalState());
  for (size_t length = 0; length <= whole.size(); ++length) {
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry.path());
    write_file(file(), whole.substr(0, length));
    const size_t done = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), length) - ends.begin());
    ASSERT_EQ(state(), done == 0 ? fresh : sums[done - 1]) << "cut at " << length;
    // Less than a header is no journal; the rest is cut off in silence, and goes on where it was cut.
    ASSERT_EQ(set_aside(), length < kHeader ? 1u : 0u) << "cut at " << length;
    ASSERT_TRUE(open()->append({{Kind::kTerm, 100, {}, {}}}).ok());
    ASSERT_THAT(state(), HasSubstr(" term 100 ")) << "cut at " << length;
  }
}

TEST_F(FileJournalTest, AFlippedByteAnywhereIsFoundAndTheFileKept) {
  {
    const auto journal = open();
    for (const auto& records : kAppends) ASSERT_TRUE(journal->append(records).ok());
  }
  const std::string whole = read_file(file());
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove(entry.path());
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    write_file(file(), damaged);
    ASSERT_EQ(state(), text_of(JournalState())) << "flipped at " << at;
    ASSERT_EQ(read_file(fs::path(folder_) / "journal.bad-1"), damaged) << "flipped at " << at;
  }
}

TEST_F(FileJournalTest, UnreadableJournalsArePutAsideOneBesideTheOther) {
  for (size_t turn = 1; turn <= 3; ++turn) {
    write_file(file(), fmt::format("nonsense {} that is longer than a header", turn));
    EXPECT_TRUE(open()->load().fresh);
    EXPECT_EQ(set_aside(), turn);
  }
  EXPECT_THAT(read_file(fs::path(folder_) / "journal.bad-2"), HasSubstr("nonsense 2"));
}

TEST_F(FileJournalTest, FramesThatChangedPlacesAreFound) {
  std::vector<size_t> ends;
  {
    const auto journal = open();
    for (uint64_t term = 1; term <= 3; ++term) {
      ASSERT_TRUE(journal->append({{Kind::kTerm, term, {}, {}}}).ok());
      ends.push_back(fs::file_size(file()));
    }
  }
  const std::string whole = read_file(file());
  write_file(file(), whole.substr(0, ends[0]) + whole.substr(ends[1]) + whole.substr(ends[0], ends[1] - ends[0]));
  EXPECT_TRUE(open()->load().fresh);
  EXPECT_EQ(set_aside(), 1u);
}

TEST_F(FileJournalTest, AJournalThatGrewIsRewrittenAndSaysTheSame) {
  JournalState expected;
  {
    const auto journal = open();
    const JournalRecord member{Kind::kMember, 0, client(1), "10.0.0.1:5000"};
    ASSERT_TRUE(journal->append({member}).ok());
    expected.apply(member);
    uint64_t written = 0;
    for (uint64_t i = 1; i <= 20; ++i) {
      std::vector<JournalRecord> records;
      for (uint64_t each = 0; each < 1000; ++each)
        records.push_back({Kind::kTombstone, i, client(1), fmt::format("key {}", each % 10)});
      ASSERT_TRUE(journal->append(records).ok());
      for (const JournalRecord& record : records) {
        expected.apply(record);
        written += 29 + record.text.size();
      }
    }
    EXPECT_LT(fs::file_size(file()), written / 2);
  }
  EXPECT_EQ(state(), text_of(expected));
}

TEST_F(FileJournalTest, ARewriteThatWasInterruptedIsIgnored) {
  ASSERT_TRUE(open()->append({{Kind::kTerm, 3, {}, {}}}).ok());
  write_file(fs::path(folder_) / "journal.new", "half of it");
  EXPECT_THAT(state(), HasSubstr("term 3"));
  ASSERT_TRUE(open()->append({{Kind::kTerm, 4, {}, {}}}).ok());
  EXPECT_THAT(state(), HasSubstr("term 4"));
}

// The size limit of files stands for a full disk: writes end in the middle of a record, then fail.
TEST_F(FileJournalTest, AFullDiskIsAnErrorAndNothingOfTheAppendIsBelieved) {
  ASSERT_NE(::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto journal = open();
  ASSERT_TRUE(journal->append({{Kind::kTerm, 1, {}, {}}}).ok());
  const uint64_t size = fs::file_size(file());
  const std::vector<JournalRecord> member = {{Kind::kMember, 0, client(1), "10.0.0.1:5000"}};
  for (const uint64_t room : {0, 1, 15, 16, 17, 40}) {
    rlimit limit = before;
    limit.rlim_cur = size + room;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status status = journal->append(member);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_FALSE(status.ok()) << "room for " << room;
    EXPECT_THAT(status.message(), HasSubstr(folder_));
    EXPECT_TRUE(journal->load().members.empty());
    // Whoever read the file now would not find it either.
    const fs::path copy = folder_ + "-copy";
    fs::create_directory(copy);
    fs::copy_file(file(), copy / "journal");
    const auto other = FileJournal::open(copy);
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE((*other)->load().members.empty());
    EXPECT_EQ((*other)->load().term, 1u);
    fs::remove_all(copy);
  }
  ASSERT_TRUE(journal->append(member).ok());
  EXPECT_EQ(journal->load().members.size(), 1u);
}

TEST_F(FileJournalTest, AFolderHasOneMasterAndTheErrorNamesIt) {
  auto journal = open();
  const auto second = FileJournal::open(folder_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kAddressInUse);
  EXPECT_THAT(second.status().message(), HasSubstr(fmt::format("process {}", ::getpid())));
  EXPECT_THAT(second.status().message(), HasSubstr(folder_));
  journal.reset();
  EXPECT_TRUE(FileJournal::open(folder_).ok());
}

TEST_F(FileJournalTest, ALockOfAProcessThatWasKilledIsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto journal = FileJournal::open(folder_);
    static_cast<void>(!::write(ready[1], journal.ok() ? "y" : "n", 1));
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_THAT(FileJournal::open(folder_).status().message(), HasSubstr(fmt::format("process {}", child)));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileJournal::open(folder_).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FileJournalTest, AFolderThatCantBeMadeIsNamed) {
  write_file(fs::path(folder_) / "taken", "a file");
  const auto journal = FileJournal::open(folder_ + "/taken/folder");
  ASSERT_FALSE(journal.ok());
  EXPECT_THAT(journal.status().message(), HasSubstr(folder_ + "/taken/folder"));
}

}  // namespace
}  // namespace tidewire::store
