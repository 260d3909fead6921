// SPDX-License-Identifier: Apache-2.0
//
// StatusSocket: lets `tidewire status PID` ask a running engine. It listens on the abstract Unix socket
// "\0tidewire-status-<pid>-<n>" (n = 0, 1, … for the engines of a process), writes one JSON text to whoever connects
// and closes. Only processes of the same user, and root, get an answer (SO_PEERCRED). Abstract names belong to the
// network namespace: ask from inside the same container.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/service_thread.h"
#include "base/unique_fd.h"

namespace tidewire {

class StatusSocket {
 public:
  static constexpr int kMaxEngines = 64;        // names tried in one process
  static constexpr size_t kMaxText = 16 << 20;  // longest text that a reader accepts

  // `json` is called on the socket's thread, once for each question.
  explicit StatusSocket(std::function<std::string()> json) : json_(std::move(json)) {}
  ~StatusSocket() { stop(); }

  // kNoResources when all names are taken.
  Status start();
  void stop() { thread_.stop(); }
  // The n of the name; -1 before start.
  int index() const { return index_; }

 private:
  void serve(int stop_fd);
  void answer(int connection, int stop_fd);

  std::function<std::string()> json_;
  UniqueFd listener_;
  int index_ = -1;
  ServiceThread thread_;
};

// The texts of all engines of process `pid`, in order of n. kNotFound when it has none that this network namespace
// sees, kPermissionDenied when another user's process has the name, kTimeout when it does not answer within a second.
Result<std::vector<std::string>> read_status(pid_t pid);

}  // namespace tidewire
