// SPDX-License-Identifier: Apache-2.0
//
// Sessions: objects that are read or written in ranges, layer by layer, with one question to the master at the start.
#include <algorithm>
#include <set>

#include "base/thread.h"
#include "store/client/call.h"
#include "store/client/client.h"

namespace tidewire::store {
struct Client::PutSession {
  std::mutex mutex;
  std::condition_variable changed;
  Version token = 0;
  uint64_t size = 0;
  std::vector<Place> places;
  Nanos asked = 0;
  Nanos lease = 0;
  uint32_t failed = 0;  // places that missed something
  int in_flight = 0;
  bool sealed = false;
};

std::vector<int64_t> Client::start_get_session(const std::vector<std::string>& keys) {
  std::vector<int64_t> results(keys.size(), 0);
  std::vector<std::string> fresh;
  std::vector<size_t> index;
  {
    std::lock_guard lock(sessions_mutex_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (get_sessions_.contains(keys[i])) continue;
      fresh.push_back(keys[i]);
      index.push_back(i);
    }
  }
  const Nanos asked = monotonic_now();
  const std::vector<GetPlace> found = places(fresh);
  std::lock_guard lock(sessions_mutex_);
  for (size_t k = 0; k < fresh.size(); ++k) {
    results[index[k]] = static_cast<int64_t>(found[k].code);
    // The lease is asked for again by the first range that comes after it.
    if (found[k].code == Code::kOk) get_sessions_[fresh[k]] = {found[k], asked + read_lease_.load()};
  }
  return results;
}

std::vector<int64_t> Client::end_get_session(const std::vector<std::string>& keys) {
  std::vector<int64_t> results;
  std::lock_guard lock(sessions_mutex_);
  for (const std::string& key : keys)
    results.push_back(get_sessions_.erase(key) > 0 ? 0 : static_cast<int64_t>(Code::kNotFound));
  return results;
}

std::vector<int64_t> Client::start_put_session(const std::vector<std::string>& keys, const std::vector<uint64_t>& sizes,
                                               const PutOptions& options, bool upsert) {
  std::vector<int64_t> results(keys.size(), 0);
  PutStart start;
  start.options = {options};
  start.upsert = upsert;
  std::vector<size_t> index;
  {
    std::lock_guard lock(sessions_mutex_);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (put_sessions_.contains(keys[i])) continue;
      start.keys.push_back(keys[i]);
      start.sizes.push_back(sizes[i]);
      index.push_back(i);
    }
  }
  if (index.empty()) return results;
  Nanos asked = 0;
  PutStartAnswer answer;
  const Code code = start_put(start, deadline(), &asked, &answer);
  std::lock_guard lock(sessions_mutex_);
  for (size_t k = 0; k < index.size(); ++k) {
    const Code each = code == Code::kOk ? answer.puts[k].code : code;
    results[index[k]] = static_cast<int64_t>(each);
    if (each != Code::kOk) continue;
    auto session = std::make_shared<PutSession>();
    session->token = answer.puts[k].version;
    session->size = start.sizes[k];
    session->places = std::move(answer.puts[k].places);
    session->asked = asked;
    session->lease = answer.lease;
    put_sessions_[start.keys[k]] = std::move(session);
  }
  renew_sessions_soon();
  return results;
}

// Open sessions are prolonged by the worker until they end: between two layers a writer may compute for long.
void Client::renew_sessions_soon() {
  if (renewing_) return;
  renewing_ = true;
  link_->run_at(monotonic_now() + kSecond / 2, [this] {
    PutRenew renew;
    std::vector<std::shared_ptr<PutSession>> sessions;
    {
      std::lock_guard lock(sessions_mutex_);
      renewing_ = false;
      for (const auto& [key, session] : put_sessions_) {
        renew.puts.push_back({key, session->token});
        sessions.push_back(session);
      }
      if (sessions.empty()) return;
      renew_sessions_soon();
    }
    const Nanos asked = monotonic_now();
    link_->call(std::move(renew), asked + kSecond, [sessions, asked](const Result<Body>& answer) {
      const auto* renewed = answer.ok() ? std::get_if<PutRenewAnswer>(&*answer) : nullptr;
      if (renewed == nullptr) return;
      for (size_t i = 0; i < sessions.size() && i < renewed->codes.size(); ++i) {
        if (renewed->codes[i] != Code::kOk) continue;
        std::lock_guard lock(sessions[i]->mutex);
        sessions[i]->asked = asked;
        sessions[i]->lease = renewed->lease;
      }
    });
  });
}

std::vector<int64_t> Client::write_session(std::vector<GetItem> items) {
  std::vector<int64_t> results(items.size(), static_cast<int64_t>(Code::kInvalidWrite));
  for (size_t i = 0; i < items.size(); ++i) {
    std::shared_ptr<PutSession> session;
    {
      std::lock_guard lock(sessions_mutex_);
      if (const auto found = put_sessions_.find(items[i].key); found != put_sessions_.end()) session = found->second;
    }
    if (!session) continue;
    if (!touchable(items[i].key, items[i].parts)) {
      results[i] = static_cast<int64_t>(Code::kNotSupported);
      continue;
    }
    Nanos stop = 0;
    {
      std::lock_guard lock(session->mutex);
      if (session->sealed) continue;
      const bool inside = std::all_of(items[i].parts.begin(), items[i].parts.end(), [&](const Part& part) {
        return part.length <= session->size && part.offset <= session->size - part.length;
      });
      if (!inside) {
        results[i] = static_cast<int64_t>(Code::kInvalidParams);
        continue;
      }
      ++session->in_flight;
      stop = session->asked + session->lease - kStopBefore;
    }
    uint32_t failed = 0;
    int64_t bytes = 0;
    std::vector<Usable> memory;
    std::vector<engine::TransferSpec> specs;
    std::vector<size_t> place_of;
    for (const Part& part : items[i].parts) {
      bytes += static_cast<int64_t>(part.length);
      memory.emplace_back(*engine_, staging_, part.address, part.length, true);
      for (size_t p = 0; p < session->places.size(); ++p) {
        const Place& place = session->places[p];
        if (part.length == 0) continue;
        specs.push_back(transfer(transport::Opcode::kWrite, memory.back(), 0, place, part.offset, part.length));
        place_of.push_back(p);
      }
    }
    engine::SubmitOptions options;
    options.deadline = std::max<Nanos>(stop - monotonic_now(), 1);
    Result<engine::BatchPtr> batch = engine_->submit(specs, options);
    if (batch.ok()) {
      (*batch)->wait(kNever, engine_->settings().busy_poll);
      for (size_t t = 0; t < specs.size(); ++t) {
        const Result<tw_transfer_status> status = (*batch)->transfer_status(t);
        if (!status.ok() || status->state != TW_STATE_COMPLETED) failed |= 1u << place_of[t];
      }
    } else {
      failed = ~0u;
    }
    std::lock_guard lock(session->mutex);
    session->failed |= failed;
    --session->in_flight;
    session->changed.notify_all();
    const uint32_t all = session->places.size() >= 32 ? ~0u : (1u << session->places.size()) - 1;
    results[i] = (session->failed & all) == all ? static_cast<int64_t>(Code::kTransferFailed) : bytes;
  }
  return results;
}

std::vector<int64_t> Client::end_put_session(const std::vector<std::string>& keys, bool commit) {
  std::vector<int64_t> results(keys.size(), static_cast<int64_t>(Code::kInvalidWrite));
  PutEnd end;
  bool quiet = true;
  std::vector<size_t> index;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::shared_ptr<PutSession> session;
    {
      std::lock_guard lock(sessions_mutex_);
      const auto found = put_sessions_.find(keys[i]);
      if (found == put_sessions_.end()) continue;
      session = found->second;
      put_sessions_.erase(found);
    }
    std::unique_lock lock(session->mutex);
    session->sealed = true;
    session->changed.wait(lock, [&] { return session->in_flight == 0; });
    end.puts.push_back({keys[i], session->token});
    end.checksums.push_back(0);  // ranges come in any order; nobody has seen the whole
    end.written.push_back(~session->failed);
    quiet = quiet && session->failed == 0;
    index.push_back(i);
  }
  if (index.empty()) return results;
  std::vector<Code> codes;
  Code code = Code::kOk;
  CodesAnswer answer;
  code = commit ? call(std::move(end), deadline(), &answer, false)
                : call(PutRevoke{end.puts, quiet}, deadline(), &answer, false);
  for (size_t k = 0; k < index.size(); ++k)
    results[index[k]] = static_cast<int64_t>(code == Code::kOk && k < answer.codes.size() ? answer.codes[k] : code);
  return results;
}

}  // namespace tidewire::store
