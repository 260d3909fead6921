// SPDX-License-Identifier: Apache-2.0
//
// The checksum of an object's bytes: XXH3, 64 bits. 0 means "none"; a sum of 0 is stored as 1.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tidewire::store {

struct Part;

// Of bytes that come one after the other.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  void add(uint64_t address, uint64_t length);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of the parts' bytes, one after the other. `between` is called every 64 MiB.
uint64_t checksum(
    const std::vector<Part>& parts, const std::function<void()>& between = [] {});

}  // namespace tidewire::store
