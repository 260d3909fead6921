// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/guard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tidewire::transport::shm {

template <typename T>
Result<std::unique_ptr<SharedArray<T>>> SharedArray<T>::create(const char* name, bool reads_only) {
  UniqueFd file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return errno_status(errno, "memfd_create for a guard page");
  if (ftruncate(file.get(), kBytes) != 0) return errno_status(errno, "ftruncate of a guard page");
  void* items = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (items == MAP_FAILED) return errno_status(errno, "mapping a guard page");
  std::unique_ptr<SharedArray> array(new SharedArray(std::move(file), items));
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (reads_only ? F_SEAL_FUTURE_WRITE : 0);
  if (fcntl(array->descriptor(), F_ADD_SEALS, seals) != 0) return errno_status(errno, "sealing a guard page");
  return array;
}

template <typename T>
Result<std::unique_ptr<SharedArray<T>>> SharedArray<T>::open(UniqueFd file, bool read_only) {
  struct stat facts {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file.get(), &facts) != 0 ||
      facts.st_size < static_cast<off_t>(kBytes)) {
    return Status(Code::kProtocol, "the peer sent a guard page that is too small or not sealed");
  }
  void* items =
      mmap(nullptr, kBytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (items == MAP_FAILED) return errno_status(errno, "mapping a guard page of the peer");
  file.reset();  // the mapping is enough
  return std::unique_ptr<SharedArray>(new SharedArray(UniqueFd(), items));
}

template <typename T>
SharedArray<T>::~SharedArray() {
  munmap(items_, kBytes);
}

template <typename T>
Status SharedArray<T>::ensure(uint32_t slot) {
  constexpr uint64_t kStep = 64 * 1024;
  const uint64_t needed = (uint64_t{slot} + 1) * sizeof(T);
  if (needed <= present_) return {};
  const uint64_t until = std::min(kBytes, (needed + kStep - 1) / kStep * kStep);
  // Not fallocate: a file that is sealed against writing refuses it.
  if (madvise(reinterpret_cast<char*>(items_) + present_, until - present_, 23 /* MADV_POPULATE_WRITE */) != 0 &&
      errno != EINVAL) {
    return errno_status(errno, "memory for a guard page");
  }
  present_ = until;
  return {};
}

template class SharedArray<std::atomic<uint64_t>>;
template class SharedArray<std::atomic<uint32_t>>;

}  // namespace tidewire::transport::shm
