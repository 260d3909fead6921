// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/stall_watch.h"

#include <algorithm>

namespace tidewire::transport::tcp {

void StallWatch::restart(Nanos now) {
  moved_ = heard_ = now;
}

StallWatch::Verdict StallWatch::check(const LinkProgress& progress, Nanos now) {
  if (progress.bytes_acked != acked_ || progress.bytes_received != received_) {
    acked_ = progress.bytes_acked;
    received_ = progress.bytes_received;
    moved_ = heard_ = now;
    return Verdict::kFine;
  }
  // Bytes that wait although the window is open and nothing is on its way: the own interface refuses them (link down,
  // no route). The kernel tries again without telling. A window smaller than a segment is the rest of one that closes.
  const bool refused = progress.unacked_segments == 0 && progress.unsent_bytes > 0 && progress.window_bytes > 0 &&
                       progress.window_bytes >= progress.segment_bytes;
  if (progress.unacked_segments == 0 && !refused) {
    moved_ = now;
    // Unsent bytes with nothing on its way: the window is closed, a ping would only queue behind them.
    if (progress.unsent_bytes == 0 && now - heard_ >= timeout_ / 2) {
      heard_ = now;
      return Verdict::kAsk;
    }
    return Verdict::kFine;
  }
  const Nanos patience = std::max(timeout_, 2 * (progress.rtt + 4 * progress.rtt_variance));
  return now - moved_ >= patience ? Verdict::kDead : Verdict::kFine;
}

}  // namespace tidewire::transport::tcp
