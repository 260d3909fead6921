// SPDX-License-Identifier: Apache-2.0
//
// Work of the host in the order of a CUDA stream: after what is on the stream already, before what comes later.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"

namespace tidewire::cuda {

// Runs `work` on a thread of its own once the stream has come to it, and holds the stream until it returned. `stream`
// is a CUstream (cudaStream_t) as a number; 0 is the default stream of the caller's current context. Returns at once;
// `work` may use the driver. An error, and `work` never runs: no driver, no context on the calling thread, a stream
// that is being captured into a graph (kUnsupported: the work would run at the first replay only).
Status run_in_stream(uint64_t stream, std::function<void()> work);

}  // namespace tidewire::cuda
