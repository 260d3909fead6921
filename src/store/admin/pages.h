// SPDX-License-Identifier: Apache-2.0
//
// What the master's pages say, from a snapshot of the master; pure functions. Keys and names are bytes: what is not
// UTF-8 in them is shown as U+FFFD.
#pragma once

#include <string>
#include <vector>

#include "base/metrics.h"
#include "store/master/master_host.h"

namespace tidewire::store::admin {

// {"address", "instance", "term", "role", "service_ready", "up_seconds", "objects", "capacity_bytes", "used_bytes",
// "hit_rate",
//  "clients": [{"name", "id", "state", "silent_seconds", "segments"}], "segments": [{"name", "owner", "size", "used",
//  "objects", "live"}], "counters": {…}}
std::string status_json(const std::string& address, const InstanceId& instance, const MasterSnapshot& now);
std::string health_json(const std::string& address, const MasterSnapshot& now);
// A few lines for people.
std::string summary(const MasterSnapshot& now);
// {"key", "size", "version", "replicas": [{"endpoint", "address", "size"}]}, or {"key", "error"} when it has none.
std::string place_json(const std::string& key, const GetPlace& place);
std::string places_json(const std::vector<std::string>& keys, const std::vector<GetPlace>& places);
std::string lines(const std::vector<std::string>& each);
// Names of the segments, each once, in order.
std::vector<std::string> segment_names(const MasterSnapshot& now);
std::string segments_json(const MasterSnapshot& now);
// "Used(bytes): …" of all segments of that name; empty when there is none.
std::string segment_use(const MasterSnapshot& now, const std::string& name);
std::string error_json(const std::string& text);

// Brings the registry up to the snapshot; segments that are gone stay with 0.
void update_metrics(const MasterSnapshot& now, Metrics* metrics);

}  // namespace tidewire::store::admin
