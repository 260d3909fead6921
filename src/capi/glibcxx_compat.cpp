// SPDX-License-Identifier: Apache-2.0
//
// Keeps the library and the program at GLIBCXX_3.4.29, so that the wheel runs with the libstdc++ of g++ 11
// (manylinux_2_34). g++ 12 gave std::condition_variable::wait a new symbol version, 3.4.30, of the same behaviour; the
// linker's --wrap sends its callers here instead.
#include <pthread.h>

#include <condition_variable>
#include <mutex>

extern "C" void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                                 std::unique_lock<std::mutex>* lock) noexcept {
  pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}
