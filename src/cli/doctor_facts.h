// SPDX-License-Identifier: Apache-2.0
//
// What `tidewire doctor` looks at. Gathering (doctor_facts.cpp) touches the machine; judging (doctor_findings.cpp)
// turns facts into findings and touches nothing, so that tests can be every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/settings.h"
#include "topology/machine.h"

namespace tidewire::cli {

// A library that is loaded at run time.
struct Library {
  bool found = false;
  std::string path;     // where it was found
  std::string version;  // as it tells itself; may be empty
};

constexpr uint64_t kUnlimited = UINT64_MAX;

struct Facts {
  topology::Machine machine;
  Settings settings;                           // defaults where a value is bad
  std::string settings_error;                  // of Settings::load; empty: all good
  std::string secret_error;                    // of load_secret
  std::vector<std::string> unknown_variables;  // TIDEWIRE_* that no setting has

  uint64_t open_files = 0, open_files_most = 0;   // soft and hard limit
  uint64_t locked_memory = 0;                     // bytes; kUnlimited
  int port_range_first = 0, port_range_last = 0;  // ephemeral ports; 0: unknown
  uint64_t socket_buffer_most = 0;                // the smaller of net.core.rmem_max and wmem_max; 0: unknown
  int bind_v4 = 0, bind_v6 = 0;                   // errno of listening on 127.0.0.1 and ::1
  int bind_range = 0;  // errno of the setting's port range when it is set: 0 some port is free

  int memfd = 0;        // errno of making and mapping one
  int process_vm = 0;   // errno of a child reading its parent's memory
  int yama_scope = -1;  // -1: Yama is absent
  bool shm_mounted = false;
  uint64_t shm_size = 0, shm_free = 0;           // /dev/shm
  std::string thp_enabled, shmem_enabled;        // the word in brackets: "madvise"; empty: unknown
  uint64_t huge_pages = 0, huge_pages_free = 0;  // of 2 MiB

  Library libfabric, libibverbs, libcuda, libnrt;
  int uverbs = 0, uverbs_usable = 0;  // /dev/infiniband/uverbs*
  int neuron_devices = 0;             // /dev/neuron*
};

// Takes well under a second; starts and awaits one short-lived child.
Facts gather_facts();

}  // namespace tidewire::cli
