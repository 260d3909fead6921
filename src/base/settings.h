// SPDX-License-Identifier: Apache-2.0
//
// Settings: the one typed table of what can be tuned. Each entry has a name ("transfer.timeout"), a unit, a default, a range, the
// environment name (TIDEWIRE_TRANSFER_TIMEOUT) and, where one exists, the MC_* name that means the same. A value comes from, in this
// order: an explicit option "name=value", the TIDEWIRE_* environment, the MC_* environment, the default. A Settings object is
// immutable once loaded; an engine keeps its own copy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tidewire {

struct Settings {
  Nanos transfer_timeout = 30 * kSecond;       // transfer.timeout, s (MC_TRANSFER_TIMEOUT, at least 5 there), 0.001 … 86400
  Nanos connect_timeout = 1 * kSecond;         // connect.timeout, s, 0.01 … 60: TCP connect plus handshake of one attempt
  Nanos stall_timeout = 500 * kMillisecond;    // lane.stall_timeout, s, 0.05 … 60: a lane without progress for so long is given up
  Nanos probe_interval = 500 * kMillisecond;   // peer.probe_interval, s, 0.05 … 60: how often a peer in back-off is tried again
  Nanos idle_close = 60 * kSecond;             // connection.idle_close, s, 1 … 86400
  Nanos store_timeout = 30 * kSecond;          // store.timeout, s, 0.1 … 3600: of one call of the store
  Nanos slow_transfer = 0;                     // log.slow_transfer, s, 0 (off) … 3600: slower batches are logged with their phases
  int64_t io_threads = 0;                      // threads.io, 0 (automatic: half the processors, 1 … 4) … 64
  int64_t copy_threads = 0;                    // threads.copy, 0 (automatic: processors - 1, 1 … 4) … 64
  int64_t lanes_per_rail = 0;                  // tcp.lanes_per_rail, 0 (automatic) … 16: connections to one peer on one rail
  int64_t slice_bytes = 1 << 20;               // slice.bytes, 64 KiB … 1 GiB
  int64_t slice_pieces = 4096;                 // slice.pieces, 1 … 65536: most pieces in one scatter frame
  int64_t lane_window_bytes = 8 << 20;         // lane.window, bytes in flight on one lane, 64 KiB … 1 GiB
  int64_t socket_buffer = 4 << 20;             // tcp.socket_buffer, bytes, 0 (the kernel's own) … 256 MiB
  int64_t port_min = 0;                        // port.min, 0 = any … 65535
  int64_t port_max = 0;                        // port.max, 0 = any … 65535
  bool same_host = true;                       // same_host: use shared memory between processes of one host
  bool busy_poll = false;                      // busy_poll: waiters spin instead of sleeping
  bool ptracer = false;                        // same_host.allow_ptrace: PR_SET_PTRACER_ANY so that Yama lets peers copy
  bool force_tcp = false;                      // force_tcp (MC_FORCE_TCP)
  std::string secret_file;                     // secret.file (TIDEWIRE_SECRET_FILE): file with the cluster secret
  std::string metrics;                         // metrics (TIDEWIRE_METRICS), host:port; empty = off
  std::string log_level = "warn";              // log.level (TIDEWIRE_LOG)

  // Loads from the process environment plus "name=value" options. A bad value: kInvalidArgument that names setting, value, range and
  // origin.
  static Result<Settings> load(const std::vector<std::string>& options);
};

// One row of the table, as printed by doctor and generated into docs/settings.md.
struct SettingRow {
  std::string name, unit, default_value, range, environment, mooncake, value, origin, help;
};
// The table with the values and origins that load(options) would give; bad values show their error in `value`.
std::vector<SettingRow> describe_settings(const std::vector<std::string>& options);

// The cluster secret: empty when secret_file is empty. The file must be readable by its owner alone and hold 16 … 4096 bytes after
// trailing white space is dropped; otherwise kInvalidArgument naming the file and the remedy (never the content).
Result<std::string> load_secret(const std::string& secret_file);

}  // namespace tidewire
