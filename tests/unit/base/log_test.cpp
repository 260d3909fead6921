// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/log_detail.h"
#include "base/unique_fd.h"

namespace tidewire::log {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// Puts a pipe in the place of stderr. A failed expectation must wait until release(), so that its text is not lost.
class CapturedStderr {
 public:
  CapturedStderr() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reader_.reset(ends[0]);
    saved_.reset(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
  }
  ~CapturedStderr() { release(); }

  void release() {
    if (saved_.valid()) ::dup2(saved_.get(), STDERR_FILENO);
    saved_.reset();
  }
  std::string read_all() {
    std::string text;
    char buffer[8192];
    for (ssize_t got; (got = ::read(reader_.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }
  void close_reader() { reader_.reset(); }

 private:
  UniqueFd reader_, saved_;
};

class Log : public ::testing::Test {
 protected:
  void SetUp() override { set_level(Level::kWarn); }
  void TearDown() override { set_level(Level::kWarn); }
};

std::string line(std::string_view text, size_t size = 4096, uint64_t suppressed = 0, uint64_t dropped = 0) {
  std::string out(size, '#');
  out.resize(format_line(out.data(), size, {1767323045, 678}, Level::kWarn, 42, text, suppressed, dropped));
  return out;
}

TEST_F(Log, ALineHasTimeLevelProcessAndText) {
  EXPECT_EQ(line("peer gone peer=a:1"), "2026-01-02T03:04:05.678Z W tidewire[42] peer gone peer=a:1\n");
}

TEST_F(Log, ALineTellsWhatWasLeftOut) {
  EXPECT_THAT(line("x", 4096, 7, 3), EndsWith(" x suppressed=7 dropped=3\n"));
}

TEST_F(Log, ForeignBytesCanNotStartALineOrDriveATerminal) {
  EXPECT_THAT(line("a\nb\x1b[31m\tc"), EndsWith(" a b [31m c\n"));
}

TEST_F(Log, ALongTextIsCutAndStaysOneLine) {
  const std::string out = line(std::string(10'000, 'x'), 4096, 1, 1);
  EXPECT_EQ(out.size(), 4096u);
  EXPECT_THAT(out, EndsWith("x... suppressed=1 dropped=1\n"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
}

TEST_F(Log, TinyBuffersAreNotOverrun) {
  for (size_t size = 0; size < 80; ++size) {
    std::string out(size + 8, '#');
    EXPECT_LE(format_line(out.data(), size, {0, 0}, Level::kError, 1, "hello", 5, 6), size);
    EXPECT_EQ(out.substr(size), "########") << size;
  }
}

TEST_F(Log, WritesWarningsAndKeepsQuietBelow) {
  CapturedStderr captured;
  info("test_info", "not shown");
  warn("test_warn", "shown peer={}", "b");
  const std::string text = captured.read_all();
  captured.release();
  EXPECT_THAT(text, MatchesRegex("[0-9T:.Z-]+ W tidewire\\[[0-9]+\\] shown peer=b\n"));
}

TEST_F(Log, LevelsDecideWhatIsEnabled) {
  set_level(Level::kDebug);
  EXPECT_TRUE(enabled(Level::kDebug));
  set_level(Level::kError);
  EXPECT_FALSE(enabled(Level::kWarn));
  EXPECT_TRUE(enabled(Level::kError));
  set_level(Level::kOff);
  EXPECT_FALSE(enabled(Level::kError));
  EXPECT_FALSE(enabled(Level::kOff));
}

TEST_F(Log, LevelNamesAreParsed) {
  EXPECT_EQ(parse_level("debug"), Level::kDebug);
  EXPECT_EQ(parse_level("off"), Level::kOff);
  EXPECT_FALSE(parse_level("loud").has_value());
  EXPECT_FALSE(parse_level("").has_value());
}

// Runs in a process of its own (the next test starts it), where no test has set the level.
TEST(LogFreshProcess, DISABLED_TakesTheLevelFromTheEnvironment) {
  EXPECT_TRUE(enabled(Level::kInfo));
  EXPECT_FALSE(enabled(Level::kDebug));
}

TEST(LogFreshProcess, TheEnvironmentSetsTheLevelOfANewProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TIDEWIRE_LOG", "info", 1);
    ::unsetenv("GTEST_OUTPUT");
    ::execl("/proc/self/exe", "base_test", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
            "--gtest_filter=LogFreshProcess.DISABLED_TakesTheLevelFromTheEnvironment", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Log, AFullPipeDropsLinesInsteadOfBlocking) {
  CapturedStderr captured;
  const std::string filler(65536, 'f');
  ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  while (::write(STDERR_FILENO, filler.data(), filler.size()) > 0) {
  }
  ::fcntl(STDERR_FILENO, F_SETFL, 0);  // a blocking descriptor: a plain write would now hang
  const uint64_t before = dropped_lines();
  error("test_full", "lost");
  const uint64_t dropped = dropped_lines() - before;
  captured.read_all();
  error("test_full", "found");
  const std::string text = captured.read_all();
  captured.release();
  EXPECT_EQ(dropped, 1u);
  EXPECT_THAT(text, HasSubstr("found dropped=1"));
  EXPECT_THAT(text, Not(HasSubstr("lost")));
}

TEST_F(Log, AStderrWithoutReaderKillsNobody) {
  CapturedStderr captured;
  captured.close_reader();
  error("test_no_reader", "nobody listens");
  captured.release();
}

TEST_F(Log, LinesOfManyThreadsDoNotMix) {
  CapturedStderr captured;
  std::atomic<bool> done{false};
  std::string text;
  std::thread reader([&] {
    while (!done.load()) text += captured.read_all();
    text += captured.read_all();
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([thread] {
      for (int index = 0; index < 10; ++index) {
        error("test_mix" + std::to_string(thread * 100 + index), "{}",
              std::string(1000, static_cast<char>('a' + thread)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  reader.join();
  captured.release();
  size_t lines = 0;
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1, ++lines) {
    const std::string each = text.substr(start, end - start);
    const std::string body = each.substr(each.rfind("] ") + 2).substr(0, 1000);
    ASSERT_EQ(body, std::string(1000, body[0])) << each;
  }
  EXPECT_GT(lines, 0u);
}

TEST(LogRateLimiter, AdmitsTenASecondAndTellsTheRestLater) {
  RateLimiter limiter;
  uint64_t suppressed = 99;
  int admitted = 0;
  for (int line = 0; line < 25; ++line)
    admitted += limiter.admit("key", 5 * kSecond + line, &suppressed) && suppressed == 0;
  EXPECT_EQ(admitted, 10);
  EXPECT_TRUE(limiter.admit("other", 5 * kSecond, &suppressed));
  EXPECT_TRUE(limiter.admit("key", 6 * kSecond, &suppressed));
  EXPECT_EQ(suppressed, 15u);
  EXPECT_TRUE(limiter.admit("key", 6 * kSecond, &suppressed));
  EXPECT_EQ(suppressed, 0u);
}

TEST(LogRateLimiter, CountsExactlyOverThreads) {
  RateLimiter limiter;
  std::atomic<int> admitted{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      uint64_t suppressed = 0;
      for (int line = 0; line < 1000; ++line) admitted += limiter.admit("key", kSecond, &suppressed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t suppressed = 0;
  EXPECT_TRUE(limiter.admit("key", 2 * kSecond, &suppressed));
  EXPECT_EQ(admitted.load(), 10);
  EXPECT_EQ(suppressed, 3990u);
}

}  // namespace
}  // namespace tidewire::log
