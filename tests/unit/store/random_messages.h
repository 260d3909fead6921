// SPDX-License-Identifier: Apache-2.0
//
// Messages of the store with random contents, and their comparison. fields() names the members of each struct once for
// both.
#pragma once

#include <array>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "store/messages.h"
#include "store/rpc/codec.h"

namespace tidewire::store::testing {

inline auto fields(SegmentKey& x) {
  return std::tie(x.owner, x.ordinal);
}
inline auto fields(SegmentInfo& x) {
  return std::tie(x.ordinal, x.name, x.base, x.size);
}
inline auto fields(Place& x) {
  return std::tie(x.segment, x.endpoint, x.address);
}
inline auto fields(PutOptions& x) {
  return std::tie(x.replicas, x.soft_pin, x.soft_pin_ttl, x.hard_pin, x.prefer_same_host, x.preferred_segments,
                  x.data_type);
}
inline auto fields(InventoryEntry& x) {
  return std::tie(x.key, x.version, x.segment, x.offset, x.size, x.checksum, x.flags, x.group);
}
inline auto fields(Held& x) {
  return std::tie(x.segment, x.offset, x.size, x.remaining);
}
inline auto fields(KeyVersion& x) {
  return std::tie(x.key, x.version);
}
inline auto fields(Attach& x) {
  return std::tie(x.client, x.name, x.host_id, x.term, x.master, x.generation, x.segments, x.entries);
}
inline auto fields(AttachAnswer& x) {
  return std::tie(x.code, x.term, x.master, x.generation, x.inventory, x.heartbeat, x.client_ttl, x.max_lease);
}
inline auto fields(InventoryChunk& x) {
  return std::tie(x.entries, x.held, x.last);
}
inline auto fields(Heartbeat&) {
  return std::tie();
}
inline auto fields(HeartbeatAnswer& x) {
  return std::tie(x.code);
}
inline auto fields(Mount& x) {
  return std::tie(x.segment);
}
inline auto fields(Unmount& x) {
  return std::tie(x.ordinal);
}
inline auto fields(PutStart& x) {
  return std::tie(x.keys, x.sizes, x.options, x.groups, x.upsert);
}
inline auto fields(PutPlace& x) {
  return std::tie(x.code, x.version, x.places);
}
inline auto fields(PutStartAnswer& x) {
  return std::tie(x.lease, x.puts);
}
inline auto fields(PutEnd& x) {
  return std::tie(x.puts, x.checksums, x.written);
}
inline auto fields(PutRevoke& x) {
  return std::tie(x.puts, x.quiet);
}
inline auto fields(PutRenew& x) {
  return std::tie(x.puts);
}
inline auto fields(PutRenewAnswer& x) {
  return std::tie(x.lease, x.codes);
}
inline auto fields(Get& x) {
  return std::tie(x.keys);
}
inline auto fields(GetPlace& x) {
  return std::tie(x.code, x.version, x.size, x.checksum, x.places);
}
inline auto fields(GetAnswer& x) {
  return std::tie(x.lease, x.gets);
}
inline auto fields(Exists& x) {
  return std::tie(x.keys);
}
inline auto fields(Remove& x) {
  return std::tie(x.keys, x.force);
}
inline auto fields(RemoveMatching& x) {
  return std::tie(x.pattern, x.force);
}
inline auto fields(CountAnswer& x) {
  return std::tie(x.code, x.count);
}
inline auto fields(CodesAnswer& x) {
  return std::tie(x.codes);
}
inline auto fields(CodeAnswer& x) {
  return std::tie(x.code);
}
inline auto fields(ReportUnreadable& x) {
  return std::tie(x.owner);
}
inline auto fields(Grant& x) {
  return std::tie(x.term, x.master, x.generation, x.lease);
}
inline auto fields(GrantAnswer& x) {
  return std::tie(x.code, x.term, x.wait);
}
inline auto fields(Record& x) {
  return std::tie(x.term, x.entries);
}
inline auto fields(Drop& x) {
  return std::tie(x.term, x.generation, x.entries, x.holds);
}
inline auto fields(Quiet& x) {
  return std::tie(x.term, x.writer, x.endpoint);
}

template <typename T>
concept HasFields = requires(T& x) {
  fields(x);
};

template <typename T>
bool same(const T& a, const T& b) {
  if constexpr (HasFields<T>) {
    return std::apply(
        [&](auto&... left) {
          return std::apply([&](auto&... right) { return (same(left, right) && ...); }, fields(const_cast<T&>(b)));
        },
        fields(const_cast<T&>(a)));
  } else if constexpr (requires { a.begin(); } && !std::is_same_v<T, std::string>) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!same(a[i], b[i])) return false;
    return true;
  } else {
    return a == b;
  }
}

inline bool same(const Message& a, const Message& b) {
  if (a.request != b.request || a.answer != b.answer || a.body.index() != b.body.index()) return false;
  return std::visit([&](const auto& body) { return same(body, std::get<std::decay_t<decltype(body)>>(b.body)); },
                    a.body);
}

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}
  uint64_t number() { return random_(); }
  uint64_t below(uint64_t limit) { return random_() % limit; }

  // Of kIndex's struct in Body.
  template <size_t kIndex>
  Message message() {
    Message out;
    out.request = number();
    out.answer = below(2) == 0;
    auto& body = out.body.emplace<kIndex>();
    fill(body);
    repair(body);
    return out;
  }

  template <typename T>
  void fill(T& x) {
    if constexpr (HasFields<T>) {
      std::apply([&](auto&... field) { (fill(field), ...); }, fields(x));
    } else if constexpr (std::is_same_v<T, bool>) {
      x = below(2) == 0;
    } else if constexpr (std::is_same_v<T, PinAction> || std::is_same_v<T, InventoryWish>) {
      x = static_cast<T>(below(3));
    } else if constexpr (std::is_same_v<T, Code>) {
      x = static_cast<Code>(below(2) == 0 ? 0 : static_cast<int32_t>(number()));
    } else if constexpr (std::is_integral_v<T>) {
      x = static_cast<T>(number() >> below(64));
    } else if constexpr (std::is_same_v<T, std::string>) {
      x.resize(below(4) == 0 ? 0 : below(100));
      for (char& c : x) c = static_cast<char>(number());
    } else if constexpr (std::is_same_v<T, std::vector<Place>>) {
      // Few segments, so that they repeat.
      x.resize(below(kMaxReplicas + 1));
      for (Place& place : x) {
        place.segment.owner.fill(static_cast<uint8_t>(below(5)));
        place.segment.ordinal = static_cast<uint32_t>(below(4));
        place.endpoint = "host-" + std::to_string(below(3)) + ":4000";
        place.address = number();
      }
    } else if constexpr (requires { x.resize(0); }) {
      x.resize(below(8) == 0 ? 200 : below(6));
      for (auto& element : x) fill(element);
    } else {
      for (auto& element : x) fill(element);
    }
  }

  // Brings lists that belong together to one length.
  template <typename T>
  void repair(T&) {}
  void repair(PutStart& x) {
    resize(x.sizes, x.keys.size());
    resize(x.options, below(2) == 0 ? 1 : x.keys.size());
    resize(x.groups, below(2) == 0 ? 0 : x.keys.size());
  }
  void repair(PutEnd& x) {
    resize(x.checksums, x.puts.size());
    resize(x.written, x.puts.size());
  }
  void repair(Drop& x) { resize(x.holds, below(2) == 0 ? 0 : x.entries.size()); }

 private:
  template <typename T>
  void resize(std::vector<T>& list, size_t size) {
    const size_t before = list.size();
    list.resize(size);
    for (size_t i = before; i < size; ++i) fill(list[i]);
  }
  std::mt19937_64 random_;
};

// make(std::integral_constant<size_t, i>) for the index of each struct in Body.
template <typename Make>
void for_each_body(Make make) {
  [&]<size_t... kIndexes>(std::index_sequence<kIndexes...>) {
    (make(std::integral_constant<size_t, kIndexes>()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Body>>());
}

// What the other side's decoder gets of a frame's bytes.
inline control::Frame frame_of(const std::vector<uint8_t>& bytes) {
  control::FrameDecoder decoder(kMaxMessageBytes);
  for (size_t used = 0; used < bytes.size();) used += decoder.feed(std::span(bytes).subspan(used));
  return decoder.take();
}

}  // namespace tidewire::store::testing
