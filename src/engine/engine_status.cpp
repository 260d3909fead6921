// SPDX-License-Identifier: Apache-2.0
//
// What `tidewire status` shows of an engine.
#include <nlohmann/json.hpp>

#include "engine/engine.h"

namespace tidewire::engine {
namespace {

// The state of a peer's session as an operator reads it.
const char* state_name(Session::State state) {
  switch (state) {
    case Session::State::kIdle: return "idle";
    case Session::State::kFetching: return "connecting";
    case Session::State::kReady: return "ready";
    case Session::State::kBackoff: return "back-off";
  }
  return "unknown";
}

constexpr size_t kMostPeersShown = 200;

}  // namespace

std::string Engine::status_json() {
  nlohmann::json status;
  status["version"] = TW_VERSION_STRING;
  status["address"] = record_.name;
  status["instance"] = to_string(instance_);
  status["process_id"] = record_.process_id;
  status["regions"] = regions_.size();
  status["registered_bytes"] = regions_.registered_bytes();
  status["pool"] = nlohmann::json::parse(pool_.describe(), nullptr, false);
  status["control"] = nlohmann::json::parse(node_->describe(), nullptr, false);
  status["metrics_address"] = metrics_server_.address();
  for (const RailRecord& rail : record_.rails)
    status["rails"].push_back({{"transport", rail.transport}, {"name", rail.name}, {"address", rail.address},
                               {"bits_per_second", rail.bits_per_second}});
  for (const auto& transport : transports_)
    status["transports"][std::string(transport->name())] = nlohmann::json::parse(transport->describe(), nullptr, false);
  const std::vector<PeerPtr> peers = all_peers();
  status["peers_known"] = peers.size();
  status["peers"] = nlohmann::json::array();
  for (const PeerPtr& peer : peers) {
    if (status["peers"].size() >= kMostPeersShown) break;
    status["peers"].push_back(peer->inspect([&](const Session& session) {
      nlohmann::json one{{"name", peer->name()},
                         {"state", state_name(session.state())},
                         {"jobs", session.jobs()},
                         {"retries", session.retries()},
                         {"fallbacks", session.fallbacks()},
                         {"backoffs", session.backoffs()},
                         {"last_error", session.last_error().ok() ? "" : session.last_error().to_string()},
                         {"channels", nlohmann::json::array()}};
      if (session.record()) one["instance"] = to_string(session.record()->instance);
      for (const Session::ChannelInfo& channel : session.channels())
        one["channels"].push_back({{"transport", channel.transport},
                                   {"local_rail", channel.local_rail},
                                   {"remote_rail", channel.remote_rail},
                                   {"state", channel.state},
                                   {"in_flight_bytes", channel.in_flight_bytes},
                                   {"bytes_per_second", channel.bytes_per_second}});
      return one;
    }));
  }
  {
    std::lock_guard lock(errors_mutex_);
    status["last_errors"] = last_errors_;
  }
  {
    std::lock_guard lock(inbox_mutex_);
    status["notifications_waiting"] = inbox_.size();
  }
  return status.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tidewire::engine
