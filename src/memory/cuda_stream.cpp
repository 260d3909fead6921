// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_stream.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>

#include "base/thread.h"
#include "memory/cuda_driver.h"

namespace tidewire::cuda {
namespace {

// Between the stream and the thread that works for it. The driver must not be called from a function on a stream, so
// that function only opens the gate and waits.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  enum class State { kClosed, kOpen, kDone, kAbandoned } state = State::kClosed;

  void set(State next) {
    std::lock_guard lock(mutex);
    state = next;
    changed.notify_all();
  }
};

void on_stream(void* argument) {
  const std::unique_ptr<std::shared_ptr<Gate>> gate(static_cast<std::shared_ptr<Gate>*>(argument));
  Gate& shared = **gate;
  std::unique_lock lock(shared.mutex);
  shared.state = Gate::State::kOpen;
  shared.changed.notify_all();
  shared.changed.wait(lock, [&] { return shared.state == Gate::State::kDone; });
}

}  // namespace

Status run_in_stream(uint64_t stream, std::function<void()> work) {
  const CudaDriver* driver = CudaDriver::get();
  if (driver == nullptr) return visible_devices().status();
  if (driver->launch_host_function == nullptr)
    return Status(Code::kUnsupported, "the CUDA driver is older than 10.0 and has no cuLaunchHostFunc");
  const auto handle = reinterpret_cast<Stream>(stream);
  int capturing = 0;
  if (driver->stream_is_capturing != nullptr) {
    const Error error = driver->stream_is_capturing(handle, &capturing);
    if (error != kSuccess) return driver->status(error, fmt::format("asking for the state of stream {:#x}", stream));
    if (capturing != 0)
      return Status::error(Code::kUnsupported,
                           "stream {:#x} is being captured into a graph; transfers can't be part of graphs", stream);
  }
  auto gate = std::make_shared<Gate>();
  // The thread comes first: once the function is on the stream it must not be left without one.
  try {
    start_thread("tw-cuda-stream", [gate, work = std::move(work)] {
      {
        std::unique_lock lock(gate->mutex);
        gate->changed.wait(lock, [&] { return gate->state != Gate::State::kClosed; });
        if (gate->state == Gate::State::kAbandoned) return;
      }
      work();
      gate->set(Gate::State::kDone);
    }).detach();
  } catch (const std::system_error& error) {
    return errno_status(error.code().value(), "starting a thread for a CUDA stream");
  }
  auto* argument = new std::shared_ptr<Gate>(gate);
  const Error error = driver->launch_host_function(handle, on_stream, argument);
  if (error == kSuccess) return {};
  delete argument;
  gate->set(Gate::State::kAbandoned);
  return driver->status(error, fmt::format("queueing a transfer on stream {:#x}", stream));
}

}  // namespace tidewire::cuda
