// SPDX-License-Identifier: Apache-2.0
#include "store/admin/pages.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace tidewire::store::admin {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

struct Sum {
  uint64_t size = 0, used = 0, objects = 0;
};

Sum sum_of(const MasterSnapshot& now) {
  Sum sum;
  for (const Master::SegmentView& segment : now.segments) {
    sum.size += segment.size;
    sum.used += segment.used;
    sum.objects += segment.objects;
  }
  return sum;
}

std::map<std::string, Sum> sums_by_name(const MasterSnapshot& now) {
  std::map<std::string, Sum> sums;
  for (const Master::SegmentView& segment : now.segments) {
    Sum& sum = sums[segment.name];
    sum.size += segment.size;
    sum.used += segment.used;
    sum.objects += segment.objects;
  }
  return sums;
}

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}
double seconds(Nanos time) {
  return static_cast<double>(time / kMillisecond) / 1000;
}

// Name, value and help of each counter: for JSON, text and metrics alike.
struct Named {
  const char* name;
  uint64_t value;
  const char* help;
};
std::vector<Named> named(const Master::Counters& counters) {
  return {{"gets", counters.gets, "Keys that clients asked places of."},
          {"hits", counters.hits, "Keys that were there when a client asked."},
          {"puts_started", counters.puts_started, "Puts that were given space."},
          {"puts_committed", counters.puts_committed, "Puts that became visible."},
          {"puts_no_space", counters.puts_no_space, "Puts that were refused for want of space."},
          {"puts_abandoned", counters.puts_abandoned, "Puts that were given up: revoked, or their writer fell silent."},
          {"removed", counters.removed, "Objects that clients removed."},
          {"evicted", counters.evicted, "Objects that were evicted to make room."},
          {"evicted_bytes", counters.evicted_bytes, "Bytes of evicted objects."},
          {"tombstones", counters.tombstones, "Removals that an owner could not be told at once."}};
}

ordered_json segments_of(const MasterSnapshot& now) {
  ordered_json all = ordered_json::array();
  for (const Master::SegmentView& segment : now.segments)
    all.push_back({{"name", segment.name},
                   {"owner", to_string(segment.owner)},
                   {"size", segment.size},
                   {"used", segment.used},
                   {"objects", segment.objects},
                   {"live", segment.live}});
  return all;
}

ordered_json place_of(const std::string& key, const GetPlace& place) {
  if (place.code != Code::kOk) return {{"key", key}, {"error", code_name(place.code)}};
  ordered_json replicas = ordered_json::array();
  for (const Place& each : place.places)
    replicas.push_back({{"endpoint", each.endpoint}, {"address", each.address}, {"size", place.size}});
  return {{"key", key}, {"size", place.size}, {"version", place.version}, {"replicas", replicas}};
}

}  // namespace

std::string status_json(const std::string& address, const InstanceId& instance, const MasterSnapshot& now) {
  std::map<ClientId, uint64_t> segments;
  for (const Master::SegmentView& segment : now.segments) ++segments[segment.owner];
  ordered_json clients = ordered_json::array();
  for (const Master::ClientView& client : now.clients)
    clients.push_back({{"name", client.name},
                       {"id", to_string(client.id)},
                       {"state", client.state},
                       {"silent_seconds", seconds(client.silent)},
                       {"segments", segments[client.id]}});
  ordered_json counters;
  for (const Named& counter : named(now.counters)) counters[counter.name] = counter.value;
  const Sum sum = sum_of(now);
  return text_of({{"address", address},
                  {"instance", to_string(instance)},
                  {"term", now.term},
                  {"role", "leader"},
                  {"service_ready", !now.taking_over},
                  {"up_seconds", seconds(now.up)},
                  {"objects", now.objects},
                  {"capacity_bytes", sum.size},
                  {"used_bytes", sum.used},
                  {"hit_rate", ratio(now.counters.hits, now.counters.gets)},
                  {"clients", clients},
                  {"segments", segments_of(now)},
                  {"counters", counters}});
}

std::string health_json(const std::string& address, const MasterSnapshot& now) {
  return text_of({{"status", "ok"},
                  {"role", "leader"},
                  {"ha_state", now.taking_over ? "taking_over" : "serving"},
                  {"service_ready", !now.taking_over},
                  {"leader_address", address},
                  {"view_version", now.term}});
}

std::string summary(const MasterSnapshot& now) {
  const Sum sum = sum_of(now);
  std::string text = fmt::format(
      "clients: {}\nsegments: {}\nobjects: {}\nused: {} of {} bytes ({:.1f} %)\nhit rate: {:.1f} % of {} gets\n",
      now.clients.size(), now.segments.size(), now.objects, sum.used, sum.size, 100 * ratio(sum.used, sum.size),
      100 * ratio(now.counters.hits, now.counters.gets), now.counters.gets);
  for (const Named& counter : named(now.counters)) text += fmt::format("{}: {}\n", counter.name, counter.value);
  return text;
}

std::string place_json(const std::string& key, const GetPlace& place) {
  return text_of(place_of(key, place));
}

std::string places_json(const std::vector<std::string>& keys, const std::vector<GetPlace>& places) {
  ordered_json all = ordered_json::array();
  for (size_t i = 0; i < keys.size() && i < places.size(); ++i) all.push_back(place_of(keys[i], places[i]));
  return text_of(all);
}

std::string lines(const std::vector<std::string>& each) {
  std::string text;
  for (const std::string& line : each) text += line + "\n";
  return text;
}

std::vector<std::string> segment_names(const MasterSnapshot& now) {
  std::vector<std::string> names;
  for (const auto& [name, sum] : sums_by_name(now)) names.push_back(name);
  return names;
}

std::string segments_json(const MasterSnapshot& now) {
  return text_of(segments_of(now));
}

std::string segment_use(const MasterSnapshot& now, const std::string& name) {
  const auto sums = sums_by_name(now);
  const auto found = sums.find(name);
  return found == sums.end()
             ? std::string()
             : fmt::format("Used(bytes): {}\nCapacity(bytes) : {}\n", found->second.used, found->second.size);
}

std::string error_json(const std::string& text) {
  return text_of({{"error", text}});
}

void update_metrics(const MasterSnapshot& now, Metrics* metrics) {
  const auto gauge = [metrics](const char* name, const char* help, uint64_t value, Metrics::Labels labels = {}) {
    metrics->gauge(std::string("tidewire_store_") + name, help, std::move(labels)).set(static_cast<int64_t>(value));
  };
  const Sum sum = sum_of(now);
  gauge("objects", "Objects in the catalogue.", now.objects);
  gauge("capacity_bytes", "Bytes that clients lend to the store.", sum.size);
  gauge("used_bytes", "Bytes of them that are given out.", sum.used);
  gauge("segments", "Mounted segments.", now.segments.size());
  gauge("term", "Term of this master.", now.term);
  gauge("ready", "1 when owners of the master before have been heard or waited for.", now.taking_over ? 0 : 1);
  std::map<std::string, uint64_t> states = {{"live", 0}, {"suspect", 0}, {"gone", 0}};
  for (const Master::ClientView& client : now.clients) ++states[client.state];
  for (const auto& [state, count] : states) gauge("clients", "Clients by state.", count, {{"state", state}});
  for (const Named& counter : named(now.counters)) {
    Counter& series = metrics->counter(fmt::format("tidewire_store_{}_total", counter.name), counter.help);
    series.add(counter.value - std::min(series.value(), counter.value));
  }
}

}  // namespace tidewire::store::admin
