// SPDX-License-Identifier: Apache-2.0
//
// A client that lends one segment to a master and grants, records and drops whatever it is asked; and a master to ask.
#pragma once

#include "store/master/master_host.h"
#include "unit/store/link_support.h"

namespace tidewire::store::testing {

struct Owner {
  static constexpr uint64_t kBytes = 1 << 20;

  explicit Owner(const std::string& master, const std::string& secret = "", const std::string& name = "10.0.0.1:5000")
      : client(master, secret) {
    attach.client = client.options.instance;
    attach.name = name;
    attach.host_id = name;
    attach.segments = {{0, name, 0x1000, kBytes}};
    client.at_request = [this](uint64_t request, const Body& body) {
      if (const auto* grant = std::get_if<Grant>(&body))
        client.link->answer(request, GrantAnswer{Code::kOk, grant->term, 0});
      else if (const auto* record = std::get_if<Record>(&body))
        client.link->answer(request, CodesAnswer{std::vector<Code>(record->entries.size())});
      else if (const auto* drop = std::get_if<Drop>(&body))
        client.link->answer(request, CodesAnswer{std::vector<Code>(drop->entries.size())});
      else
        client.link->answer(request, CodeAnswer{});
    };
    client.start();
  }

  // Attaches.
  ::testing::AssertionResult join() {
    const auto answer = client.link->call_and_wait(attach, in(kLong));
    if (!answer.ok()) return ::testing::AssertionFailure() << answer.status().to_string();
    const auto* reply = std::get_if<AttachAnswer>(&*answer);
    if (!reply || reply->code != Code::kOk) return ::testing::AssertionFailure() << "attach was refused";
    return ::testing::AssertionSuccess();
  }

  template <typename Answer>
  Answer ask(Body request) {
    const auto answer = client.link->call_and_wait(std::move(request), in(kLong));
    if (answer.ok())
      if (const auto* reply = std::get_if<Answer>(&*answer)) return *reply;
    ADD_FAILURE() << "no such answer: " << answer.status().to_string();
    return {};
  }

  // Tries again while the master takes over, and until it may allocate here.
  Code put(const std::string& key, uint64_t size) {
    PutPlace place;
    const Nanos until = in(kLong);
    do {
      const auto started = ask<PutStartAnswer>(PutStart{{key}, {size}, {PutOptions{}}, {}, false});
      if (started.puts.size() != 1) return Code::kInternal;
      place = started.puts[0];
    } while ((place.code == Code::kNoSpace || place.code == Code::kUnavailable) && monotonic_now() < until);
    if (place.code != Code::kOk) return place.code;
    const auto ended = ask<CodesAnswer>(PutEnd{{{key, place.version}}, {0}, {1}});
    return ended.codes.size() == 1 ? ended.codes[0] : Code::kInternal;
  }

  TestClient client;
  Attach attach;
};

inline MasterHostOptions quick_options() {
  MasterHostOptions options;
  options.master.takeover = 10 * kMillisecond;
  return options;
}

inline std::unique_ptr<MasterHost> start_host(MasterHostOptions options = quick_options()) {
  auto host = MasterHost::start(std::move(options));
  if (host.ok()) return std::move(*host);
  ADD_FAILURE() << host.status().to_string();
  std::abort();
}

}  // namespace tidewire::store::testing
