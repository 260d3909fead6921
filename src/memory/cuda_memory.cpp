// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_memory.h"

#include <array>
#include <atomic>
#include <mutex>

#include "memory/cuda_driver.h"

namespace tidewire::cuda {
namespace {

constexpr int kMaxDevices = 64;
enum Direction { kToHost, kFromHost, kWithin, kDirections };

// Streams and spare events of one device, made at its first copy and kept.
struct DeviceQueues {
  std::mutex mutex;
  std::array<std::atomic<Stream>, kDirections> streams{};
  std::vector<Event> spare;
};

DeviceQueues& queues_of(int device) {
  static auto* const all = new std::array<DeviceQueues, kMaxDevices>;
  return (*all)[static_cast<size_t>(device)];
}

const CudaDriver* driver_or(Status& status) {
  const CudaDriver* driver = CudaDriver::get();
  if (driver == nullptr) status = visible_devices().status();
  return driver;
}

// In the device's context.
Status stream_of(const CudaDriver& driver, int device, Direction direction, Stream* stream) {
  DeviceQueues& queues = queues_of(device);
  *stream = queues.streams[direction].load(std::memory_order_acquire);
  if (*stream != nullptr) return {};
  std::lock_guard lock(queues.mutex);
  *stream = queues.streams[direction].load(std::memory_order_acquire);
  if (*stream != nullptr) return {};
  const Error error = driver.stream_create(stream, kStreamNonBlocking);
  if (error != kSuccess) return driver.status(error, fmt::format("making a stream on cuda:{}", device));
  queues.streams[direction].store(*stream, std::memory_order_release);
  return {};
}

class CudaMemory final : public MemoryKind {
 public:
  std::string_view name() const override { return "cuda"; }
  bool host_accessible() const override { return false; }

  std::optional<std::string> locate(uint64_t address, uint64_t length) const override {
    const auto first = classify(address);
    if (!first.ok() || !first->on_device()) return std::nullopt;
    // A mapping of the virtual memory functions is made of many allocations: its ends are what can be asked of it.
    const bool bounded = first->kind != PointerKind::kVirtual && first->size > 0;
    if (bounded && length > first->base + first->size - address) return std::nullopt;
    if (!bounded && length > 1) {
      const auto last = classify(address + length - 1);
      if (!last.ok() || !last->on_device() || last->device != first->device) return std::nullopt;
    }
    return fmt::format("cuda:{}", first->device);
  }

  Status trouble(uint64_t address) const override { return classify(address).status(); }

  Status available() const override { return visible_devices().status(); }

  std::string hint(const std::string& location) const override {
    const auto visible = visible_devices();
    if (!visible.ok()) return {};
    const size_t colon = location.find(':');
    const int device = colon == std::string::npos ? -1 : std::atoi(location.c_str() + colon + 1);
    if (device >= *visible) return "; " + no_such_device(device, *visible).message();
    return "; memory of a device that CUDA_VISIBLE_DEVICES hides from this process can't be registered in it";
  }

  Status copy_to_host(void* host, uint64_t address, uint64_t length) const override {
    TW_ASSIGN_OR_RETURN(const int device, device_of(address));
    return finished(start_to_host(host, address, length, device), device, false);
  }

  Status copy_from_host(uint64_t address, const void* host, uint64_t length) const override {
    TW_ASSIGN_OR_RETURN(const int device, device_of(address));
    return finished(start_from_host(address, host, length, device), device, true);
  }

  Status start_to_host(void* host, uint64_t address, uint64_t length, int device) const override {
    Stream stream = nullptr;
    return on_device(device, [&](const CudaDriver& driver) -> Status {
      TW_RETURN_IF_ERROR(stream_of(driver, device, kToHost, &stream));
      const Error error = driver.copy_to_host(host, address, length, stream);
      return error == kSuccess ? Status() : driver.status(error, what("copying", length, "from", device, address));
    });
  }

  Status start_from_host(uint64_t address, const void* host, uint64_t length, int device) const override {
    Stream stream = nullptr;
    return on_device(device, [&](const CudaDriver& driver) -> Status {
      TW_RETURN_IF_ERROR(stream_of(driver, device, kFromHost, &stream));
      const Error error = driver.copy_from_host(address, host, length, stream);
      return error == kSuccess ? Status() : driver.status(error, what("copying", length, "to", device, address));
    });
  }

  Status mark(int device, bool from_host, void** mark) const override {
    return record(device, from_host ? kFromHost : kToHost, mark);
  }

  void* allocate_staging(uint64_t bytes) const override {
    const auto visible = visible_devices();
    if (!visible.ok() || *visible == 0) return nullptr;
    const CudaDriver* driver = CudaDriver::get();
    ContextScope scope(*driver, 0);
    void* memory = nullptr;
    if (!scope.status().ok() || driver->host_allocate(&memory, bytes, kHostAllocPortable) != kSuccess) return nullptr;
    return memory;
  }

  Status record(int device, Direction direction, void** mark) const {
    *mark = nullptr;
    return on_device(device, [&](const CudaDriver& driver) -> Status {
      DeviceQueues& queues = queues_of(device);
      const Stream stream = queues.streams[direction].load(std::memory_order_acquire);
      if (stream == nullptr) return {};
      Event event = nullptr;
      {
        std::lock_guard lock(queues.mutex);
        if (!queues.spare.empty()) {
          event = queues.spare.back();
          queues.spare.pop_back();
        }
      }
      Error error = event != nullptr ? kSuccess : driver.event_create(&event, kEventDisableTiming);
      if (error == kSuccess) error = driver.event_record(event, stream);
      if (error != kSuccess) {
        // What is under way can't be told apart any more: wait for all of it before its memory is touched.
        drain(driver, queues);
        if (event != nullptr) give_back(queues, event);
        return driver.status(error, fmt::format("marking copies of cuda:{}", device));
      }
      *mark = event;
      return {};
    });
  }

  Status wait(const Status& started, int device, Direction direction) const {
    void* mark = nullptr;
    TW_RETURN_IF_ERROR(started);
    TW_RETURN_IF_ERROR(record(device, direction, &mark));
    return await(device, mark);
  }

  Status await(int device, void* mark) const override {
    if (mark == nullptr) return {};
    return on_device(device, [&](const CudaDriver& driver) -> Status {
      const auto event = static_cast<Event>(mark);
      const Error error = driver.event_synchronize(event);
      // The caller gets its memory back in any case: nothing that can still be awaited may be under way then.
      if (error != kSuccess) drain(driver, queues_of(device));
      give_back(queues_of(device), event);
      return error == kSuccess ? Status() : driver.status(error, fmt::format("waiting for copies of cuda:{}", device));
    });
  }

 private:
  static void drain(const CudaDriver& driver, DeviceQueues& queues) {
    for (const auto& stream : queues.streams) {
      if (const Stream each = stream.load(std::memory_order_acquire)) (void)driver.stream_synchronize(each);
    }
  }

  static void give_back(DeviceQueues& queues, Event event) {
    std::lock_guard lock(queues.mutex);
    queues.spare.push_back(event);
  }

  static std::string what(const char* verb, uint64_t length, const char* preposition, int device, uint64_t address) {
    return fmt::format("{} {} bytes {} cuda:{} at {:#x}", verb, length, preposition, device, address);
  }

  template <typename Work>
  static Status on_device(int device, Work&& work) {
    Status status;
    const CudaDriver* driver = driver_or(status);
    if (driver == nullptr) return status;
    if (device < 0 || device >= kMaxDevices) return no_such_device(device, kMaxDevices);
    ContextScope scope(*driver, device);
    if (!scope.status().ok()) return scope.status();
    return work(*driver);
  }

  static Result<int> device_of(uint64_t address) {
    TW_ASSIGN_OR_RETURN(const PointerFacts facts, classify(address));
    if (facts.device >= 0) return facts.device;
    return Status::error(Code::kNotRegistered,
                         "{:#x} is not CUDA memory of a device that this process sees; was it freed while registered?",
                         address);
  }

  Status finished(const Status& started, int device, bool from_host) const {
    return wait(started, device, from_host ? kFromHost : kToHost);
  }
};

const CudaMemory& kind() {
  static const CudaMemory* const only = new CudaMemory;
  return *only;
}

}  // namespace

const char* kind_name(PointerKind kind) {
  switch (kind) {
    case PointerKind::kNone:
      return "host";
    case PointerKind::kPinned:
      return "pinned";
    case PointerKind::kManaged:
      return "managed";
    case PointerKind::kDevice:
      return "device";
    case PointerKind::kVirtual:
      return "virtual";
    case PointerKind::kPooled:
      return "pooled";
  }
  return "host";
}

Result<PointerFacts> classify(uint64_t address) {
  PointerFacts facts;
  const CudaDriver* driver = CudaDriver::get();
  if (driver == nullptr) return facts;
  unsigned type = 0, managed = 0;
  Error error = driver->pointer_attribute(&type, kPointerMemoryType, address);
  // Before anybody initialised the driver no device memory exists; afterwards it is the same answer in a forked child,
  // where the parent's device memory still takes up addresses.
  static std::atomic<bool> initialised{false};
  if (error != kNotInitialized) initialised.store(true, std::memory_order_relaxed);
  if (error == kInvalidValue || (error == kNotInitialized && !initialised.load(std::memory_order_relaxed)))
    return facts;
  if (error != kSuccess) return driver->status(error, fmt::format("asking the CUDA driver what {:#x} is", address));
  if (driver->pointer_attribute(&managed, kPointerIsManaged, address) != kSuccess) managed = 0;
  if (driver->pointer_attribute(&facts.device, kPointerDeviceOrdinal, address) != kSuccess) facts.device = 0;
  unsigned long long base = 0;
  size_t size = 0;
  if (driver->pointer_attribute(&base, kPointerRangeStart, address) == kSuccess &&
      driver->pointer_attribute(&size, kPointerRangeSize, address) == kSuccess) {
    facts.base = base;
    facts.size = size;
  }
  if (managed != 0) {
    facts.kind = PointerKind::kManaged;
  } else if (type != kMemoryTypeDevice) {
    facts.kind = PointerKind::kPinned;
  } else {
    facts.kind = PointerKind::kDevice;
    unsigned shareable = 1;
    void* pool = nullptr;
    unsigned long long handle = 0;
    if (driver->pointer_attribute(&shareable, kPointerIpcCapable, address) == kSuccess && shareable == 0) {
      if (driver->pointer_attribute(&pool, kPointerMempool, address) == kSuccess && pool != nullptr) {
        facts.kind = PointerKind::kPooled;
      } else if (driver->retain_allocation != nullptr &&
                 driver->retain_allocation(&handle, reinterpret_cast<void*>(address)) == kSuccess) {
        if (driver->release_allocation != nullptr) driver->release_allocation(handle);
        facts.kind = PointerKind::kVirtual;
      }
    }
  }
  return facts;
}

const MemoryKind& memory() {
  return kind();
}

Status copy_within(uint64_t destination, uint64_t source, uint64_t length, int device) {
  Status status;
  const CudaDriver* driver = driver_or(status);
  if (driver == nullptr) return status;
  ContextScope scope(*driver, device);
  if (!scope.status().ok()) return scope.status();
  Stream stream = nullptr;
  TW_RETURN_IF_ERROR(stream_of(*driver, device, kWithin, &stream));
  const Error error = driver->copy(destination, source, length, stream);
  if (error != kSuccess) {
    return driver->status(
        error, fmt::format("copying {} bytes from {:#x} to {:#x} on cuda:{}", length, source, destination, device));
  }
  return kind().wait({}, device, kWithin);
}

}  // namespace tidewire::cuda
