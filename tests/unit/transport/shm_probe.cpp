// SPDX-License-Identifier: Apache-2.0
//
// Times the same-host transport alone, without an engine above it, beside plain copies of the same bytes; for tuning by
// hand:
//   build/tests/shm_probe
// The target is a process of its own; buffers are walked, so that caches hold nothing.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "memory/copy.h"
#include "memory/pool.h"
#include "transport/shm/shm_transport.h"

namespace tidewire::transport::shm {
namespace {

constexpr uint64_t kSize = uint64_t{512} << 20;

class CountingEvents : public Events {
 public:
  void on_channel_up(ChannelId) override { up = true; }
  void on_channel_down(ChannelId, const Status& why, const InstanceId&) override {
    if (why.code() == Code::kClosed) return;  // the end of the run
    fmt::print("down: {}\n", why.to_string());
    std::exit(1);
  }
  void on_slice_done(ChannelId, const SlicePtr&, const Status& status) override {
    if (!status.ok()) {
      fmt::print("failed: {}\n", status.to_string());
      std::exit(1);
    }
    done.fetch_add(1, std::memory_order_release);
  }
  void on_revoked(ChannelId) override {}
  std::atomic<bool> up{false};
  std::atomic<uint64_t> done{0};
};

struct TargetFacts {
  InstanceId instance;
  uint64_t pool, own;
  char socket[100];
  pid_t pid;
};

uint64_t map_own() {
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return reinterpret_cast<uint64_t>(memory);
}

double seconds_of(const std::function<void()>& action) {
  const Nanos start = monotonic_now();
  action();
  return static_cast<double>(monotonic_now() - start) * 1e-9;
}

// Two threads that each do their half; `half(0)` on the caller.
void in_two(const std::function<void(int)>& half) {
  std::thread other([&] { half(1); });
  half(0);
  other.join();
}

struct Median {
  std::vector<double> values;
  double get() {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
};

void run(const TargetFacts& target) {
  RegionTable regions;
  Pool pool;
  CountingEvents events;
  ShmTransport transport(regions, {make_instance_id(), "probe", ""}, Settings{}, events);
  auto allocation = pool.allocate(kSize, "*").value();
  (void)regions.add(allocation.address, kSize, "*", Permission::kReadWrite, allocation.backing);
  const uint64_t own = map_own();
  (void)regions.add(own, kSize, "*", Permission::kReadWrite);
  PeerRecord record;
  record.instance = target.instance;
  record.host_id = host_id();
  record.same_host_socket = target.socket;
  transport.open(1, record, 0, 0, monotonic_now() + 10 * kSecond);
  while (!events.up) std::this_thread::yield();

  uint64_t next = 0;
  const auto transfer = [&](std::vector<Piece> pieces, uint64_t slice_pieces) {
    const uint64_t before = events.done.load();
    uint64_t slices = 0;
    for (size_t i = 0; i < pieces.size(); i += slice_pieces, ++slices) {
      auto slice = std::make_shared<Slice>();
      slice->id = ++next;
      slice->pieces.assign(pieces.begin() + static_cast<long>(i),
                           pieces.begin() + static_cast<long>(std::min(pieces.size(), i + slice_pieces)));
      for (const Piece& piece : slice->pieces) {
        slice->bytes += piece.length;
        (void)regions.use(piece.local, piece.length, Access::kLocal, slice->hold);
      }
      transport.post(1, std::move(slice));
    }
    while (events.done.load(std::memory_order_acquire) < before + slices) transport.drive(1);
  };
  const auto cut_up = [](uint64_t local, uint64_t remote, uint64_t size, uint64_t piece) {
    std::vector<Piece> pieces;
    for (uint64_t i = 0; i < size; i += piece) pieces.push_back({local + i, remote + i, std::min(piece, size - i)});
    return pieces;
  };

  transfer(cut_up(allocation.address, target.pool, kSize, 1 << 20), 1);  // fault everything in
  transfer(cut_up(own, target.own, kSize, 1 << 20), 1);

  for (uint64_t size : {4ul << 20, 16ul << 20, 64ul << 20}) {
    Median plain, streamed, ours, raw_foreign, foreign;
    static char* copy = static_cast<char*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    for (int round = 0; round < 15; ++round) {
      const auto count = static_cast<double>(kSize / size);
      const double gigabyte = static_cast<double>(size) * count / 1e9;
      const auto walk = [&](const std::function<void(uint64_t)>& each) {
        for (uint64_t at = 0; at + size <= kSize; at += size) each(at);
      };
      plain.values.push_back(gigabyte / seconds_of([&] {
                               in_two([&](int half) {
                                 walk([&](uint64_t at) {
                                   std::memcpy(copy + at + static_cast<uint64_t>(half) * size / 2,
                                               reinterpret_cast<char*>(allocation.address) + at +
                                                   static_cast<uint64_t>(half) * size / 2,
                                               size / 2);
                                 });
                               });
                             }));
      streamed.values.push_back(gigabyte / seconds_of([&] {
                                  in_two([&](int half) {
                                    walk([&](uint64_t at) {
                                      copy_bytes(copy + at + static_cast<uint64_t>(half) * size / 2,
                                                 reinterpret_cast<char*>(allocation.address) + at +
                                                     static_cast<uint64_t>(half) * size / 2,
                                                 size / 2);
                                    });
                                  });
                                }));
      ours.values.push_back(
          gigabyte / seconds_of([&] {
            walk([&](uint64_t at) { transfer({{allocation.address + at, target.pool + at, size}}, 1); });
          }));
      raw_foreign.values.push_back(gigabyte / seconds_of([&] {
                                     in_two([&](int half) {
                                       walk([&](uint64_t at) {
                                         const uint64_t offset = at + static_cast<uint64_t>(half) * size / 2;
                                         const iovec local{reinterpret_cast<void*>(own + offset), size / 2},
                                             remote{reinterpret_cast<void*>(target.own + offset), size / 2};
                                         if (process_vm_writev(target.pid, &local, 1, &remote, 1, 0) < 0) _exit(2);
                                       });
                                     });
                                   }));
      foreign.values.push_back(gigabyte / seconds_of([&] {
                                 walk([&](uint64_t at) { transfer({{own + at, target.own + at, size}}, 1); });
                               }));
    }
    fmt::print(
        "{:3} MiB  GB/s: memcpy x2 {:.2f}  streaming x2 {:.2f}  pool {:.2f}   process_vm x2 {:.2f}  own {:.2f}\n",
        size >> 20, plain.get(), streamed.get(), ours.get(), raw_foreign.get(), foreign.get());
  }

  for (auto [name, local, remote] : {std::tuple{"pool", allocation.address, target.pool}, {"own", own, target.own}}) {
    for (uint64_t size : {64ul, 4096ul, 65536ul}) {
      Median latency;
      for (int round = 0; round < 20'000; ++round) {
        const uint64_t at = static_cast<uint64_t>(round) * 65536 % kSize;
        latency.values.push_back(seconds_of([&] {
                                   transfer({{local + at % (16 * 65536), remote + at % (16 * 65536), size}}, 1);
                                 }) *
                                 1e6);
      }
      fmt::print("{} {} bytes: {:.2f} us median\n", name, size, latency.get());
    }
    for (uint64_t piece : {256ul, 4096ul, 32768ul}) {
      const uint64_t count = piece == 256 ? 50'000 : 188;
      Median rate;
      for (int round = 0; round < 30; ++round) {
        const uint64_t at = static_cast<uint64_t>(round) * piece * count % (kSize - piece * count);
        const auto pieces = cut_up(local + at, remote + at, piece * count, piece);
        rate.values.push_back(seconds_of([&] { transfer(pieces, 4096); }) * 1e6);
      }
      fmt::print("{} {} pieces of {}: {:.0f} us, {:.2f} GB/s\n", name, count, piece, rate.get(),
                 static_cast<double>(count * piece) / rate.get() / 1e3);
    }
  }
  transport.stop();
  regions.clear();
}

}  // namespace
}  // namespace tidewire::transport::shm

int main() {
  using namespace tidewire;
  using namespace tidewire::transport::shm;
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    RegionTable regions;
    Pool pool;
    CountingEvents events;
    TargetFacts target{};
    target.instance = make_instance_id();
    ShmTransport transport(regions, {target.instance, "target", ""}, Settings{}, events);
    auto allocation = pool.allocate(kSize, "*").value();
    target.pool = allocation.address;
    target.own = map_own();
    target.pid = getpid();
    (void)regions.add(target.pool, kSize, "*", Permission::kReadWrite, allocation.backing);
    (void)regions.add(target.own, kSize, "*", Permission::kReadWrite);
    std::strncpy(target.socket, transport.socket_name().c_str(), sizeof target.socket - 1);
    if (write(ends[1], &target, sizeof target) < 0) return 1;
    while (true) pause();
  }
  TargetFacts target{};
  if (read(ends[0], &target, sizeof target) != sizeof target) return 1;
  run(target);
  kill(child, SIGKILL);
}
