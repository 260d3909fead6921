// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

namespace tidewire {
namespace {

sigset_t mask_of_new_thread() {
  sigset_t mask;
  start_thread("tw-test", [&mask] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); }).join();
  return mask;
}

TEST(Thread, HasItsName) {
  char name[16] = "";
  start_thread("tw-a-name-of-twenty-five", [&name] { pthread_getname_np(pthread_self(), name, sizeof name); }).join();
  EXPECT_STREQ(name, "tw-a-name-of-tw");
}

TEST(Thread, TakesNoneOfTheProgramsSignals) {
  const sigset_t mask = mask_of_new_thread();
  for (const int signal : {SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGPROF, SIGWINCH}) EXPECT_EQ(sigismember(&mask, signal), 1) << signal;
}

TEST(Thread, TakesFaultsAndWhatEndsTheProgram) {
  const sigset_t mask = mask_of_new_thread();
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGTERM, SIGINT, SIGQUIT, SIGHUP}) EXPECT_EQ(sigismember(&mask, signal), 0) << signal;
}

TEST(Thread, LeavesSignalsToWhoWaitsForThem) {
  sigset_t waited, before;
  sigemptyset(&waited);
  sigaddset(&waited, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &waited, &before);
  const sigset_t mask = mask_of_new_thread();
  EXPECT_EQ(sigismember(&mask, SIGTERM), 1);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Thread, LeavesTheCallersMaskAsItWas) {
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  mask_of_new_thread();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < SIGRTMIN; ++signal) EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

}  // namespace
}  // namespace tidewire
