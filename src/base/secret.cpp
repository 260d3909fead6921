// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/settings.h"
#include "base/unique_fd.h"

namespace tidewire {
namespace {

constexpr size_t kMinSecret = 16;
constexpr size_t kMaxSecret = 4096;

Status bad(const std::string& file, const std::string& why) {
  return Status::error(Code::kInvalidArgument, "setting secret.file: '{}' {}", file, why);
}

bool is_space(char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r' || byte == '\v' || byte == '\f';
}

}  // namespace

Result<std::string> load_secret(const std::string& secret_file) {
  if (secret_file.empty()) return std::string();
  // O_NONBLOCK: a FIFO in its place must not hang the start.
  const UniqueFd fd(::open(secret_file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const Status status = errno_status(errno, "open");
    return bad(secret_file, fmt::format("can't be read ({}); name a file that this user may read", status.message()));
  }
  struct stat info;
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return bad(secret_file, "is not a file");
  if ((info.st_mode & 077) != 0) {
    return bad(secret_file, fmt::format("may be read or written by others than its owner (mode {:04o}); chmod 600 it",
                                        static_cast<unsigned>(info.st_mode & 07777)));
  }
  std::string secret(kMaxSecret + 256, '\0');  // room for white space that is dropped
  size_t used = 0;
  while (used < secret.size()) {
    const ssize_t got = ::read(fd.get(), secret.data() + used, secret.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return bad(secret_file, errno_status(errno, "can't be read").message());
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  if (used == secret.size()) return bad(secret_file, fmt::format("is longer than {} bytes", kMaxSecret));
  while (used > 0 && is_space(secret[used - 1])) --used;
  secret.resize(used);
  if (used < kMinSecret || used > kMaxSecret) {
    return bad(secret_file,
               fmt::format("holds {} bytes without trailing white space; a secret has {} to {}, for example from "
                           "`openssl rand -hex 32`",
                           used, kMinSecret, kMaxSecret));
  }
  return secret;
}

}  // namespace tidewire
