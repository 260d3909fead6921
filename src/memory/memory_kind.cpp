// SPDX-License-Identifier: Apache-2.0
#include "memory/memory_kind.h"

#include <sys/mman.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "memory/cuda_memory.h"
#include "memory/numa.h"
#include "memory/test_device.h"

namespace tidewire {
namespace {

class HostMemory final : public MemoryKind {
 public:
  std::string_view name() const override { return "cpu"; }
  bool host_accessible() const override { return true; }

  std::optional<std::string> locate(uint64_t address, uint64_t) const override {
    return fmt::format("cpu:{}", numa::node_of(address));
  }

  Status copy_to_host(void* host, uint64_t address, uint64_t length) const override {
    std::memcpy(host, reinterpret_cast<const void*>(address), length);
    return {};
  }

  Status copy_from_host(uint64_t address, const void* host, uint64_t length) const override {
    std::memcpy(reinterpret_cast<void*>(address), host, length);
    return {};
  }
};

struct ParsedLocation {
  std::string_view kind;  // empty = find out
  int index = -1;         // -1 = none given
};

Result<ParsedLocation> parse_location(std::string_view text) {
  if (text.empty() || text == "*") return ParsedLocation{};
  const auto bad = [&] {
    return Status::error(Code::kInvalidArgument,
                         "bad location '{}': expected '*', 'cpu:N', 'cuda:N', 'neuron:N' or 'testdev:N'",
                         text.substr(0, 64));
  };
  ParsedLocation parsed;
  const size_t colon = text.find(':');
  parsed.kind = text.substr(0, colon);
  if (parsed.kind != "cpu" && parsed.kind != "cuda" && parsed.kind != "neuron" && parsed.kind != "testdev")
    return bad();
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed.index);
    if (error != std::errc{} || end != digits.data() + digits.size() || parsed.index < 0 || parsed.index > 4095)
      return bad();
  }
  return parsed;
}

// Whether the page exists in this process's address space; the bytes stay untouched.
bool mapped(uint64_t address) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(address & ~uint64_t{4095}), 1, &resident) == 0 || errno != ENOMEM;
}

}  // namespace

const MemoryKind& host_memory() {
  static const HostMemory* const kind = new HostMemory;
  return *kind;
}

const std::vector<const MemoryKind*>& memory_kinds() {
  static const auto* const kinds = new std::vector<const MemoryKind*>{&test_device(), &cuda::memory(), &host_memory()};
  return *kinds;
}

Result<LocatedMemory> locate_memory(uint64_t address, uint64_t length, const std::string& location) {
  TW_ASSIGN_OR_RETURN(const ParsedLocation wanted, parse_location(location));
  if (address == 0 || length == 0 || address + length < address) {
    return Status::error(Code::kInvalidArgument,
                         "no memory at {:#x} with {} bytes: null, empty, or past the end of the address space", address,
                         length);
  }
  for (const MemoryKind* kind : memory_kinds()) TW_RETURN_IF_ERROR(kind->trouble(address));
  LocatedMemory found{nullptr, {}};
  for (const MemoryKind* kind : memory_kinds()) {
    if (auto where = kind->locate(address, length)) {
      found = {kind, *where};
      break;
    }
    if (kind->locate(address, 1) || kind->locate(address + length - 1, 1)) {
      return Status::error(Code::kInvalidArgument,
                           "range [{:#x}, {:#x}) leaves its {} allocation; register each allocation by itself", address,
                           address + length, kind->name());
    }
  }
  if (!wanted.kind.empty() && wanted.kind != found.kind->name()) {
    const MemoryKind* named = nullptr;
    for (const MemoryKind* kind : memory_kinds())
      if (kind->name() == wanted.kind) named = kind;
    const Status missing = named != nullptr ? named->available()
                                            : Status::error(Code::kUnsupported, "{} memory is not supported here", wanted.kind);
    return Status::error(missing.ok() ? Code::kInvalidArgument : missing.code(),
                         "address {:#x} was given as '{}' but is {} memory{}", address, location, found.location,
                         missing.ok() ? named->hint(location) : "; " + missing.message());
  }
  if (found.kind == &host_memory()) {
    for (uint64_t edge : {address, address + length - 1}) {
      if (!mapped(edge)) {
        return Status::error(Code::kInvalidArgument,
                             "address {:#x} of range [{:#x}, {:#x}) is not mapped in this process", edge, address,
                             address + length);
      }
    }
    // A caller knows better where the pages will be than a look at the first of them.
    if (wanted.index >= 0) found.location = fmt::format("cpu:{}", wanted.index);
  } else if (wanted.index >= 0 && fmt::format("{}:{}", wanted.kind, wanted.index) != found.location) {
    return Status::error(Code::kInvalidArgument,
                         "address {:#x} was given as '{}' but is {} memory; name its location or '*'", address,
                         location, found.location);
  }
  if (!found.kind->host_accessible()) {
    found.device = std::atoi(found.location.c_str() + found.location.find(':') + 1);
  }
  return found;
}

bool processor_may_touch(uint64_t address, uint64_t length) {
  if (length == 0) return true;
  for (const uint64_t edge : {address, address + length - 1}) {
    for (const MemoryKind* kind : memory_kinds())
      if (!kind->host_accessible() && (kind->locate(edge, 1) || !kind->trouble(edge).ok())) return false;
  }
  return true;
}

}  // namespace tidewire
