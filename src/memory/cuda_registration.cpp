// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_registration.h"

#include "memory/cuda_driver.h"
#include "memory/cuda_memory.h"

namespace tidewire::cuda {
namespace {

constexpr uint64_t kPage = 4096;

int attribute_of(const CudaDriver& driver, int device, int attribute) {
  Device handle = 0;
  int value = 0;
  if (driver.device_get(&handle, device) != kSuccess || driver.device_attribute(&value, attribute, handle) != kSuccess)
    return 0;
  return value;
}

Status refused(const PointerFacts& facts, uint64_t address, const char* why, const char* remedy) {
  return Status::error(Code::kUnsupported, "cuda:{} memory at {:#x} ({}) can't be registered with the NIC: {}; {}",
                       facts.device, address, kind_name(facts.kind), why, remedy);
}

}  // namespace

Result<FabricMemory> fabric_memory(uint64_t address, uint64_t length, bool sync_memops) {
  TW_ASSIGN_OR_RETURN(const PointerFacts facts, classify(address));
  const CudaDriver* driver = CudaDriver::get();
  if (driver == nullptr || !facts.on_device()) {
    return Status::error(Code::kInvalidArgument, "{:#x} is not CUDA device memory of this process", address);
  }
  if (facts.kind == PointerKind::kManaged) {
    return refused(facts, address, "managed memory moves between host and device", "allocate it with cudaMalloc");
  }
  ContextScope scope(*driver, facts.device);
  if (!scope.status().ok()) return scope.status();
  if (sync_memops) {
    const unsigned on = 1;
    const Error error = driver->set_pointer_attribute == nullptr
                            ? kNotSupported
                            : driver->set_pointer_attribute(&on, kPointerSyncMemops, address);
    if (error != kSuccess) {
      return refused(
          facts, address, "it takes no SYNC_MEMOPS, without which this fabric's remote operations fail",
          facts.kind == PointerKind::kPooled
              ? "allocate it with cudaMalloc instead of cudaMallocAsync (PYTORCH_CUDA_ALLOC_CONF=backend:native)"
              : "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False");
    }
  }
  FabricMemory memory;
  memory.device = facts.device;
  memory.needs_flush = attribute_of(*driver, facts.device, kDeviceWritesOrdering) < kOrderedForAllDevices;
  if (attribute_of(*driver, facts.device, kDeviceDmaBuf) != 0 && driver->handle_for_range != nullptr) {
    memory.dmabuf_base = address / kPage * kPage;
    memory.dmabuf_length = (address + length + kPage - 1) / kPage * kPage - memory.dmabuf_base;
    int file = -1;
    const Error error = driver->handle_for_range(&file, memory.dmabuf_base, memory.dmabuf_length, kHandleDmaBuf, 0);
    if (error == kSuccess) {
      memory.dmabuf = UniqueFd(file);
      return memory;
    }
    if (attribute_of(*driver, facts.device, kDeviceGpuDirect) == 0) {
      return driver->status(error,
                            fmt::format("a dma-buf for {} bytes of cuda:{} at {:#x}", length, facts.device, address));
    }
  } else if (attribute_of(*driver, facts.device, kDeviceGpuDirect) == 0) {
    return refused(
        facts, address, "the device has neither dma-buf nor GPUDirect RDMA",
        "load nvidia-peermem or use the open kernel modules of the driver; TCP goes through host memory meanwhile");
  }
  memory.dmabuf_base = memory.dmabuf_length = 0;
  return memory;
}

Status flush_remote_writes(int device) {
  const CudaDriver* driver = CudaDriver::get();
  if (driver == nullptr) return visible_devices().status();
  if (driver->flush_remote_writes == nullptr)
    return Status(Code::kUnsupported, "the CUDA driver is older than 11.3 and can't flush remote writes");
  ContextScope scope(*driver, device);
  if (!scope.status().ok()) return scope.status();
  const Error error = driver->flush_remote_writes(kFlushCurrentContext, kFlushToAllDevices);
  return driver->status(error, fmt::format("flushing remote writes to cuda:{}", device));
}

}  // namespace tidewire::cuda
