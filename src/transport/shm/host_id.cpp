// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/host_id.h"

#include <fstream>

namespace tidewire::transport::shm {

const std::string& host_id() {
  static const std::string* const id = [] {
    auto* text = new std::string;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, *text);
    if (text->size() > 39) text->clear();
    return text;
  }();
  return *id;
}

}  // namespace tidewire::transport::shm
