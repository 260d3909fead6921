// SPDX-License-Identifier: Apache-2.0
#include "store/master/file_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace tidewire::store {
namespace {

using StatusCode = tidewire::Code;

static_assert(std::endian::native == std::endian::little, "the file is little-endian");
constexpr char kHeader[16] = {'t', 'i', 'd', 'e', 'w', 'i', 'r', 'e',
                              '-', 'j', 'o', 'u', 'r', 'n', 'a', 1};  // the last byte is the version
constexpr size_t kFrameHead = 16;                // length and its check (4 bytes each), the payload's checksum (8)
constexpr size_t kMaxPayload = 64u << 20;        // more is no journal of ours
constexpr size_t kRewriteBatch = 4096;           // records in one frame of a rewrite
constexpr uint64_t kWorthRewriting = 256 << 10;  // bytes
constexpr uint64_t kGrowth = 4;                  // times its sum

uint32_t length_check(uint32_t length, uint64_t offset) {
  return static_cast<uint32_t>(XXH3_64bits_withSeed(&length, sizeof length, ~offset));
}
uint64_t payload_check(const char* payload, size_t length, uint64_t offset) {
  return XXH3_64bits_withSeed(payload, length, offset);
}

template <typename T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string frame_of(std::span<const JournalRecord> records, uint64_t offset) {
  std::string frame(kFrameHead, '\0');
  for (const JournalRecord& record : records) {
    put(frame, record.kind);
    put(frame, record.number);
    put(frame, record.client);
    put(frame, static_cast<uint32_t>(record.text.size()));
    frame += record.text;
  }
  const auto length = static_cast<uint32_t>(frame.size() - kFrameHead);
  const uint32_t check = length_check(length, offset);
  const uint64_t checksum = payload_check(frame.data() + kFrameHead, length, offset);
  std::memcpy(frame.data(), &length, 4);
  std::memcpy(frame.data() + 4, &check, 4);
  std::memcpy(frame.data() + 8, &checksum, 8);
  return frame;
}

template <typename T>
bool take(std::string_view* bytes, T* value) {
  if (bytes->size() < sizeof *value) return false;
  std::memcpy(value, bytes->data(), sizeof *value);
  bytes->remove_prefix(sizeof *value);
  return true;
}

bool apply_payload(std::string_view bytes, JournalState* state) {
  while (!bytes.empty()) {
    JournalRecord record;
    uint32_t length = 0;
    if (!take(&bytes, &record.kind) || !take(&bytes, &record.number) || !take(&bytes, &record.client) ||
        !take(&bytes, &length))
      return false;
    if (bytes.size() < length || record.kind < JournalRecord::Kind::kTerm ||
        record.kind > JournalRecord::Kind::kNeverBack)
      return false;
    record.text = bytes.substr(0, length);
    bytes.remove_prefix(length);
    state->apply(record);
  }
  return true;
}

// The state and how many bytes of the text are good; nothing when it is no journal.
std::optional<std::pair<JournalState, uint64_t>> parse(std::string_view text) {
  if (text.size() < sizeof kHeader || std::memcmp(text.data(), kHeader, sizeof kHeader) != 0) return std::nullopt;
  JournalState state;
  uint64_t at = sizeof kHeader;
  while (text.size() - at >= kFrameHead) {
    uint32_t length = 0, check = 0;
    uint64_t checksum = 0;
    std::memcpy(&length, text.data() + at, 4);
    std::memcpy(&check, text.data() + at + 4, 4);
    std::memcpy(&checksum, text.data() + at + 8, 8);
    if (check != length_check(length, at) || length > kMaxPayload) return std::nullopt;
    if (text.size() - at - kFrameHead < length) break;  // cut short
    const char* const payload = text.data() + at + kFrameHead;
    if (checksum != payload_check(payload, length, at) || !apply_payload({payload, length}, &state))
      return std::nullopt;
    at += kFrameHead + length;
  }
  return std::pair(std::move(state), at);
}

Status write_all(int fd, const std::string& bytes, uint64_t offset, const std::string& what) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (count == 0 || errno != EINTR) {
      return errno_status(count == 0 ? ENOSPC : errno, what);
    }
  }
  return Status();
}

Result<std::string> read_whole(int fd, const std::string& what) {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count > 0) {
      text.append(buffer, static_cast<size_t>(count));
    } else if (count == 0) {
      return text;
    } else if (errno != EINTR) {
      return errno_status(errno, what);
    }
  }
}

}  // namespace

Result<std::unique_ptr<FileJournal>> FileJournal::open(const std::string& folder) {
  std::unique_ptr<FileJournal> journal(new FileJournal(folder));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return errno_status(error.value(), "make the journal's folder " + folder);
  journal->folder_fd_ = UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!journal->folder_fd_.valid()) return errno_status(errno, "open the journal's folder " + folder);
  TW_RETURN_IF_ERROR(journal->lock());
  TW_RETURN_IF_ERROR(journal->read());
  return journal;
}

Status FileJournal::lock() {
  const std::string name = path("lock");
  lock_ = UniqueFd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return errno_status(errno, "open " + name);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_status(errno, "lock " + name);
    char holder[16] = {};
    static_cast<void>(::pread(lock_.get(), holder, sizeof holder - 1, 0));
    const long pid = std::strtol(holder, nullptr, 10);
    return Status::error(
        StatusCode::kAddressInUse,
        "the journal {} belongs to another master that is running, process {}; give each master a folder of its own",
        folder_, pid > 0 ? std::to_string(pid) : "unknown");
  }
  // For the error above only: the lock is what counts.
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock_.get(), 0) != 0 || !write_all(lock_.get(), pid, 0, name).ok())
    log::info("journal_lock", "{} can't be written", name);
  return Status();
}

Status FileJournal::read() {
  const std::string name = path("journal");
  file_ = UniqueFd(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.valid() && errno != ENOENT) return errno_status(errno, "open " + name);
  if (!file_.valid()) return Status();
  TW_ASSIGN_OR_RETURN(const std::string text, read_whole(file_.get(), "read " + name));
  auto parsed = parse(text);
  if (!parsed) return set_aside(fmt::format("its {} bytes are damaged or of another version", text.size()));
  if (parsed->second < text.size())
    log::warn("journal_cut", "{}: the last {} bytes are an append that was cut short; nobody relied on them", name,
              text.size() - parsed->second);
  // The first append writes it anew: what this process read may not have reached the disk.
  state_ = std::move(parsed->first);
  return Status();
}

Status FileJournal::set_aside(const std::string& why) {
  int number = 1;
  std::string aside;
  struct stat info;
  do {
    aside = path("journal.bad-") + std::to_string(number++);
  } while (::lstat(aside.c_str(), &info) == 0);
  if (::rename(path("journal").c_str(), aside.c_str()) != 0) return errno_status(errno, "set aside " + path("journal"));
  file_.reset();
  log::error("journal_unreadable",
             "{} can't be read: {}; it is kept as {}, and the master starts without it: owners that missed removals "
             "come back empty",
             path("journal"), why, aside);
  return sync_folder();
}

Status FileJournal::sync_folder() {
  if (::fsync(folder_fd_.get()) != 0) return errno_status(errno, "sync the folder " + folder_);
  return Status();
}

Status FileJournal::rewrite() {
  const std::string name = path("journal.new");
  UniqueFd fresh(::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fresh.valid()) return errno_status(errno, "open " + name);
  const std::vector<JournalRecord> records = state_.records();
  uint64_t size = sizeof kHeader;
  TW_RETURN_IF_ERROR(write_all(fresh.get(), std::string(kHeader, sizeof kHeader), 0, "write " + name));
  for (size_t first = 0; first < records.size(); first += kRewriteBatch) {
    const std::string frame =
        frame_of(std::span(records).subspan(first, std::min(kRewriteBatch, records.size() - first)), size);
    TW_RETURN_IF_ERROR(write_all(fresh.get(), frame, size, "write " + name));
    size += frame.size();
  }
  if (::fdatasync(fresh.get()) != 0) return errno_status(errno, "sync " + name);
  // From here until the folder is safe either file may be the one that a loss of power leaves.
  unsure_ = true;
  if (::rename(name.c_str(), path("journal").c_str()) != 0) return errno_status(errno, "rename " + name);
  file_ = std::move(fresh);
  size_ = size;
  TW_RETURN_IF_ERROR(sync_folder());
  unsure_ = false;
  rewrite_at_ = std::max(kWorthRewriting, kGrowth * size);
  return Status();
}

Status FileJournal::write_frame(const std::vector<JournalRecord>& records) {
  const std::string frame = frame_of(records, size_);
  if (frame.size() - kFrameHead > kMaxPayload)
    return Status::error(StatusCode::kInvalidArgument, "{} records of {} bytes at once", records.size(), frame.size());
  Status status = write_all(file_.get(), frame, size_, "write " + path("journal"));
  if (status.ok() && ::fdatasync(file_.get()) != 0) status = errno_status(errno, "sync " + path("journal"));
  if (!status.ok()) {
    // The rest of it must not stand before what comes next. After a failed fdatasync the pages may be lost for good: no
    // cutting helps, only a new file.
    unsure_ = true;
    static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(size_)));
    return status;
  }
  size_ += frame.size();
  return Status();
}

Status FileJournal::append(const std::vector<JournalRecord>& records) {
  if (unsure_) TW_RETURN_IF_ERROR(rewrite());
  if (!records.empty()) TW_RETURN_IF_ERROR(write_frame(records));
  for (const JournalRecord& record : records) state_.apply(record);
  if (size_ > rewrite_at_) {
    const Status status = rewrite();
    if (!status.ok()) {
      log::warn("journal_rewrite", "the journal can't be rewritten shorter, it grows on: {}", status.message());
      rewrite_at_ = size_ + kWorthRewriting;
    }
  }
  return Status();
}

}  // namespace tidewire::store
