// SPDX-License-Identifier: Apache-2.0
//
// Client::call: one question to the master, as often as it takes.
#pragma once

#include <algorithm>

#include "store/client/client.h"

namespace tidewire::store {

template <typename Answer>
Code Client::call(const Body& request, Nanos deadline, Answer* answer, bool repeat) {
  while (true) {
    if (closed_.load()) return Code::kUnavailable;
    Result<Body> reply = link_->call_and_wait(request, deadline);
    const Nanos now = monotonic_now();
    if (!reply.ok()) {
      using Why = tidewire::Code;
      const Why why = reply.status().code();
      if (why == Why::kPeerGone && repeat && now < deadline) continue;  // it changes nothing, or nothing more
      if (why == Why::kInvalidArgument) return Code::kInvalidParams;
      return why == Why::kTimeout ? Code::kRpcTimeout : Code::kRpcFailed;
    }
    if (auto* expected = std::get_if<Answer>(&*reply)) {
      *answer = std::move(*expected);
      return Code::kOk;
    }
    // A master that does not know this client yet, or any more: it attaches by itself.
    const auto* code = std::get_if<CodeAnswer>(&*reply);
    if (code == nullptr) return Code::kRpcFailed;
    if (code->code != Code::kClientNotFound || now >= deadline) return code->code;
    wait_attached(std::min(deadline, now + 20 * kMillisecond));
  }
}

}  // namespace tidewire::store
