// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace tidewire {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
constexpr int kEnds[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};

// The new thread inherits the mask, so that there is no moment in which it takes a signal that it should not.
class Mask {
 public:
  Mask() {
    pthread_sigmask(SIG_SETMASK, nullptr, &callers_);
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : kFaults) sigdelset(&blocked, fault);
    for (const int end : kEnds)
      if (sigismember(&callers_, end) == 0) sigdelset(&blocked, end);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  }
  ~Mask() { pthread_sigmask(SIG_SETMASK, &callers_, nullptr); }
  Mask(const Mask&) = delete;
  Mask& operator=(const Mask&) = delete;

 private:
  sigset_t callers_;
};

}  // namespace

std::thread start_thread(const std::string& name, std::function<void()> body) {
  const Mask mask;
  return std::thread([name = name.substr(0, 15), body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.c_str());
    body();
  });
}

}  // namespace tidewire
