// SPDX-License-Identifier: Apache-2.0
//
// What a store's master can do: a real `tidewire master` on one processor, clients and owners without engines
// (store_load.h) on another.
//   store_master commits|lookups|eviction|restart|memory --program build/bin/tidewire [--objects 1000000] [--players 4]
//   [--seconds 4]
// Prints one line of JSON.
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <unordered_set>

#include "reference.h"
#include "store_load.h"

namespace bench {
namespace {

using nlohmann::json;
using store::Body;
using store::Code;
using tidewire::kSecond;
using tidewire::monotonic_now;
using tidewire::Result;

constexpr uint64_t kRoomy = uint64_t{1} << 40;  // a segment that is never full

struct Settings {
  std::string program;
  uint64_t objects = 1'000'000;
  unsigned players = 4;
  double seconds = 4;
};

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// What both sides use of their processors from its making on, and how long that is.
class Clock {
 public:
  explicit Clock(const MasterProcess& master)
      : master_(master), start_(now()), used_(master.processor_seconds()), own_(own_seconds()) {}
  json take(uint64_t keys) const {
    const double seconds = now() - start_, busy = master_.processor_seconds() - used_;
    return {{"keys", keys},
            {"seconds", seconds},
            {"keys_per_s", static_cast<double>(keys) / seconds},
            {"keys_per_master_s", static_cast<double>(keys) / std::max(busy, 1e-3)},
            {"master_busy", busy / seconds},
            {"load_busy", (own_seconds() - own_) / seconds}};
  }

 private:
  const MasterProcess& master_;
  const double start_, used_, own_;
};

json commits(const Settings& settings) {
  MasterProcess master(settings.program);
  Players players = make_players(master.address(), settings.players, kRoomy);
  const uint64_t warm = settings.objects / 10;
  fill(players, 0, warm);
  const Clock clock(master);
  fill(players, warm, settings.objects + warm);
  return clock.take(settings.objects);
}

json memory(const Settings& settings) {
  MasterProcess master(settings.program);
  Players players = make_players(master.address(), settings.players, kRoomy);
  const uint64_t before = master.resident_bytes();
  fill(players, 0, settings.objects);
  const uint64_t after = master.resident_bytes();
  return {{"objects", settings.objects},
          {"before_bytes", before},
          {"after_bytes", after},
          {"bytes_per_object", static_cast<double>(after - before) / static_cast<double>(settings.objects)}};
}

// Batches of 1,000 of the objects at random, two outstanding at each player.
template <typename Question>
json look_up(const Settings& settings, const MasterProcess& master, Players& players,
             const std::vector<std::string>& keys) {
  constexpr size_t kKeys = 1000;
  struct State {
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> found{0}, missed{0};
    Open open;
  } state;
  std::function<void(Player&, uint64_t)> ask = [&](Player& player, uint64_t seed) {
    if (state.stop) return state.open.end();
    std::minstd_rand random(static_cast<unsigned>(seed));
    Question question;
    question.keys.reserve(kKeys);
    for (size_t i = 0; i < kKeys; ++i)
      question.keys.push_back(keys[(uint64_t{random()} << 16 ^ random()) % keys.size()]);
    player.link().call(std::move(question), monotonic_now() + 10 * kSecond, [&, seed](Result<Body> answer) {
      uint64_t found = 0;
      if (const auto* codes = answer.ok() ? std::get_if<store::CodesAnswer>(&*answer) : nullptr)
        found = static_cast<uint64_t>(std::count(codes->codes.begin(), codes->codes.end(), Code::kOk));
      if (const auto* places = answer.ok() ? std::get_if<store::GetAnswer>(&*answer) : nullptr)
        for (const store::GetPlace& place : places->gets) found += place.code == Code::kOk && place.places.size() == 1;
      state.found += found;
      state.missed += kKeys - found;
      ask(player, seed * 16807 % 2147483647);
    });
  };
  const Clock clock(master);
  for (size_t i = 0; i < 2 * players.size(); ++i) {
    state.open.begin();
    ask(*players[i / 2], 1 + i);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(settings.seconds));
  const json figures = clock.take(state.found);
  state.stop = true;
  state.open.wait();
  if (state.missed > 0) throw Failed(std::to_string(state.missed) + " look-ups did not find their object");
  return figures;
}

std::vector<std::string> make_keys(uint64_t count) {
  std::vector<std::string> keys;
  keys.reserve(count);
  for (uint64_t i = 0; i < count; ++i) keys.push_back(key_of(i));
  return keys;
}

json lookups(const Settings& settings) {
  MasterProcess master(settings.program);
  Players players = make_players(master.address(), settings.players, kRoomy);
  fill(players, 0, settings.objects);
  const std::vector<std::string> keys = make_keys(settings.objects);
  return {{"exists", look_up<store::Exists>(settings, master, players, keys)},
          {"get", look_up<store::Get>(settings, master, players, keys)}};
}

// ---- look-ups while objects are evicted
// ------------------------------------------------------------------------------------------------

// Seconds that one Get of 32 keys took, a thousand a second, while 10,000 objects a second are put. Looked up are the
// first tenth of the objects: their leases keep them.
std::vector<double> latencies(Players& players, Player& reader, uint64_t first, double seconds,
                              const std::vector<std::string>& keys) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> failed{0};
  std::thread writer([&] {
    const double start = now();
    Open open;
    for (uint64_t batch = 0; !stop; ++batch) {
      const double wait = start + static_cast<double>(batch) * kBatch / 10'000 - now();
      if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      std::vector<std::string> fresh;
      for (uint64_t i = 0; i < kBatch; ++i) fresh.push_back(key_of(first + batch * kBatch + i));
      open.begin();
      players[batch % players.size()]->put(std::move(fresh), [&](const std::vector<Code>& codes) {
        for (const Code code : codes) failed += code != Code::kOk;
        open.end();
      });
    }
    open.wait();
  });
  std::vector<double> times;
  std::mt19937_64 random(first);
  const double start = now();
  while (now() - start < seconds) {
    // From when it was due: those that a stall holds up count with all that they waited.
    const double due = start + static_cast<double>(times.size()) * 1e-3, wait = due - now();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    store::Get get;
    for (size_t i = 0; i < 32; ++i) get.keys.push_back(keys[random() % (keys.size() / 10)]);
    const Result<Body> answer = reader.link().call_and_wait(std::move(get), monotonic_now() + 10 * kSecond);
    times.push_back(now() - due);
    if (!answer.ok()) throw Failed("a look-up failed: " + answer.status().message());
  }
  stop = true;
  writer.join();
  if (failed > 0) throw Failed(std::to_string(failed) + " puts failed beside the look-ups");
  return times;
}

json summary(const std::vector<double>& times) {
  return {{"count", times.size()},
          {"p50_s", median(times)},
          {"p99_s", percentile(times, 0.99)},
          {"max_s", percentile(times, 1)}};
}

json eviction(const Settings& settings) {
  MasterProcess master(settings.program);
  // So much that the objects fill the segments to just below the mark.
  const uint64_t room = settings.objects * kObjectBytes / settings.players * 100 / 89;
  Players players = make_players(master.address(), settings.players, room);
  fill(players, 0, settings.objects);
  Player reader(master.address(), 100, 0);
  reader.wait_attached();
  const std::vector<std::string> keys = make_keys(settings.objects);
  // The leases of those that are looked up.
  for (uint64_t i = 0; i < keys.size() / 10; i += 1000) {
    store::Get get;
    get.keys.assign(keys.begin() + static_cast<ptrdiff_t>(i),
                    keys.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(keys.size(), i + 1000)));
    (void)reader.link().call_and_wait(std::move(get), monotonic_now() + 10 * kSecond);
  }
  const std::vector<double> with = latencies(players, reader, settings.objects, settings.seconds, keys);
  for (const auto& player : players) player->grow(kRoomy);
  const std::vector<double> without = latencies(players, reader, 2 * settings.objects, settings.seconds, keys);
  // How much was evicted: what was put first and is gone.
  uint64_t gone = 0;
  for (uint64_t i = 0; i < keys.size(); i += 1000) {
    store::Exists exists;
    exists.keys.assign(keys.begin() + static_cast<ptrdiff_t>(i),
                       keys.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(keys.size(), i + 1000)));
    const Result<Body> answer = reader.link().call_and_wait(std::move(exists), monotonic_now() + 10 * kSecond);
    if (const auto* codes = answer.ok() ? std::get_if<store::CodesAnswer>(&*answer) : nullptr)
      gone += static_cast<uint64_t>(std::count(codes->codes.begin(), codes->codes.end(), Code::kNotFound));
  }
  if (gone == 0) throw Failed("nothing was evicted");
  return {{"with", summary(with)},
          {"without", summary(without)},
          {"evicted", gone},
          {"p99_ratio", percentile(with, 0.99) / percentile(without, 0.99)}};
}

// ---- a master that is killed
// -----------------------------------------------------------------------------------------------------------

// What was acknowledged before the master died.
struct Acknowledged {
  std::mutex mutex;
  std::vector<uint64_t> put;
  std::unordered_set<uint64_t> removing;  // asked for: may be there or not
  std::vector<uint64_t> removed;
};

// Puts and removes until the master is gone.
void churn(Players& players, uint64_t objects, const std::atomic<bool>& stop, Acknowledged* done) {
  Open open;
  for (uint64_t batch = 0; !stop; ++batch) {
    Player& player = *players[batch % players.size()];
    std::vector<uint64_t> numbers;
    std::vector<std::string> fresh;
    for (uint64_t i = 0; i < kBatch; ++i) {
      numbers.push_back(objects + batch * kBatch + i);
      fresh.push_back(key_of(numbers.back()));
    }
    open.begin();
    player.put(std::move(fresh), [&, numbers](const std::vector<Code>& codes) {
      std::lock_guard lock(done->mutex);
      for (size_t i = 0; i < codes.size(); ++i)
        if (codes[i] == Code::kOk) done->put.push_back(numbers[i]);
      open.end();
    });
    store::Remove remove;
    std::vector<uint64_t> old;
    for (uint64_t i = 0; i < kBatch && (batch * kBatch + i) * 2 < objects; ++i) {
      old.push_back((batch * kBatch + i) * 2);
      remove.keys.push_back(key_of(old.back()));
    }
    {
      std::lock_guard lock(done->mutex);
      done->removing.insert(old.begin(), old.end());
    }
    open.begin();
    player.link().call(std::move(remove), monotonic_now() + 10 * kSecond, [&, old](Result<Body> answer) {
      const auto* codes = answer.ok() ? std::get_if<store::CodesAnswer>(&*answer) : nullptr;
      std::lock_guard lock(done->mutex);
      for (size_t i = 0; codes != nullptr && i < codes->codes.size(); ++i)
        if (codes->codes[i] == Code::kOk) done->removed.push_back(old[i]);
      open.end();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  open.wait();
}

// Which of these objects can't be read.
std::vector<uint64_t> unreadable(Players& players, const std::vector<uint64_t>& objects) {
  std::mutex mutex;
  std::vector<uint64_t> missing;
  Open open;
  open.begin();
  for (size_t from = 0; from < objects.size(); from += 1000) {
    const std::vector<uint64_t> some(objects.begin() + static_cast<ptrdiff_t>(from),
                                     objects.begin() + static_cast<ptrdiff_t>(std::min(objects.size(), from + 1000)));
    store::Get get;
    for (const uint64_t number : some) get.keys.push_back(key_of(number));
    open.begin();
    players[from / 1000 % players.size()]->link().call(
        std::move(get), monotonic_now() + 5 * kSecond, [&, some](Result<Body> answer) {
          const auto* places = answer.ok() ? std::get_if<store::GetAnswer>(&*answer) : nullptr;
          std::lock_guard lock(mutex);
          for (size_t i = 0; i < some.size(); ++i)
            if (places == nullptr || places->gets[i].code != Code::kOk || places->gets[i].places.empty())
              missing.push_back(some[i]);
          open.end();
        });
  }
  open.end();
  open.wait();
  return missing;
}

json restart(const Settings& settings) {
  MasterProcess master(settings.program);
  Players players = make_players(master.address(), settings.players, kRoomy);
  fill(players, 0, settings.objects);
  Acknowledged done;
  std::atomic<bool> stop{false};
  std::thread work([&] { churn(players, settings.objects, stop, &done); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const double killed = now();
  master.kill();
  stop = true;
  master.start();
  work.join();
  std::vector<uint64_t> expected = done.put;
  for (uint64_t i = 0; i < settings.objects; ++i)
    if (!done.removing.contains(i)) expected.push_back(i);
  for (const auto& player : players) player->wait_attached();
  const double attached = now() - killed;
  std::vector<uint64_t> missing = expected;
  double readable = 0;
  while (!missing.empty() && now() - killed < 30) {
    missing = unreadable(players, missing);
    readable = now() - killed;
  }
  // Those that were acknowledged as removed stay away, also once everybody has come back.
  const size_t back = done.removed.size() - unreadable(players, done.removed).size();
  if (done.removed.empty() || done.put.empty()) throw Failed("nothing was put and removed while the master was killed");
  return {{"objects", expected.size()}, {"removed", done.removed.size()}, {"lost", missing.size()}, {"back", back},
          {"attached_s", attached},     {"readable_s", readable}};
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  const std::string what = argc > 1 ? argv[1] : "";
  const std::pair<const char*, json (*)(const Settings&)> kMeasurements[] = {
      {"commits", commits}, {"lookups", lookups}, {"eviction", eviction}, {"restart", restart}, {"memory", memory}};
  for (const auto& [name, measure] : kMeasurements) {
    if (what != name) continue;
    Settings settings;
    settings.program = option(argc, argv, "--program", "build/bin/tidewire");
    settings.objects = static_cast<uint64_t>(number(argc, argv, "--objects", 1e6));
    settings.players = static_cast<unsigned>(number(argc, argv, "--players", 4));
    settings.seconds = number(argc, argv, "--seconds", 4);
    pin_process(1);
    try {
      std::printf("%s\n", measure(settings).dump().c_str());
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "store_master %s: %s\n", name, error.what());
      return 1;
    }
  }
  std::fprintf(stderr,
               "store_master commits|lookups|eviction|restart|memory --program FILE [--objects N] [--players N] "
               "[--seconds S]\n");
  return 2;
}
