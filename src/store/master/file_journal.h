// SPDX-License-Identifier: Apache-2.0
//
// FileJournal: a master's journal in a folder of its own.
//
//   lock           held (flock) while a master uses the folder; its text is the holder's process id
//   journal        a header of 16 bytes, then one frame for each append(); rewritten as a whole when it has grown much
//   beyond its sum journal.new    a rewrite that was not finished journal.bad-N  a journal that could not be read: set
//   aside, never deleted
//
// A frame has a head of 16 bytes, which has a checksum of its own, and a payload with another; both also depend on the
// place in the file. So the rest of an append that was cut short is told from a damaged file: the one is cut off
// (nobody was told that it is safe), the other makes the journal unreadable, because what is lost of it may have been
// relied on.
//
// Not thread-safe. Works on local file systems; on others as far as their flock and fdatasync do what they say.
#pragma once

#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "store/master/journal.h"

namespace tidewire::store {

class FileJournal final : public Journal {
 public:
  // Makes the folder when there is none, locks it and reads the journal. An unreadable one is set aside with an error
  // in the log, and the state is fresh. kAddressInUse names the process that has the folder; other errors name the
  // file.
  static Result<std::unique_ptr<FileJournal>> open(const std::string& folder);

  // The sum of all that was appended.
  const JournalState& load() const { return state_; }
  // All records or none. After an error the journal goes on: the next append cleans up first.
  Status append(const std::vector<JournalRecord>& records) override;

 private:
  explicit FileJournal(std::string folder) : folder_(std::move(folder)) {}

  Status lock();
  Status read();
  Status set_aside(const std::string& why);
  Status rewrite();
  Status sync_folder();
  Status write_frame(const std::vector<JournalRecord>& records);
  std::string path(const char* name) const { return folder_ + "/" + name; }

  const std::string folder_;
  UniqueFd folder_fd_, lock_, file_;
  JournalState state_;
  uint64_t size_ = 0;        // of the file, as far as it is believed
  uint64_t rewrite_at_ = 0;  // size at which it is worth it
  bool unsure_ = true;       // what lies on the disk is not known: it has to be written anew
};

}  // namespace tidewire::store
