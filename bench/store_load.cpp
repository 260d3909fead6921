// SPDX-License-Identifier: Apache-2.0
#include "store_load.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/instance_id.h"

namespace bench {

using namespace tidewire::store;
using tidewire::kMillisecond;
using tidewire::kNever;
using tidewire::kSecond;
using tidewire::monotonic_now;
using tidewire::Result;

namespace {

constexpr uint64_t kBase = uint64_t{1} << 40;  // of every segment: an address that nobody reads

void pause() {
  usleep(2000);
}

}  // namespace

std::string key_of(uint64_t number) {
  static const char digits[] = "0123456789abcdef";
  std::string key(64, '0');
  for (size_t word = 0; word < 4; ++word) {
    uint64_t mixed = number * 4 + word + 1;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    for (size_t i = 0; i < 16; ++i) key[word * 16 + i] = digits[mixed >> (4 * i) & 15];
  }
  return key;
}

void pin_process(unsigned index) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  CPU_ZERO(&one);
  CPU_SET(processors[index % processors.size()], &one);
  sched_setaffinity(0, sizeof one, &one);
}

// ---- the master
// ------------------------------------------------------------------------------------------------------------------------

MasterProcess::MasterProcess(std::string program, std::vector<std::string> flags)
    : program_(std::move(program)), flags_(std::move(flags)) {
  char folder[] = "/tmp/tidewire-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) throw Failed("no folder for the master's journal");
  journal_ = folder;
  start();
}

MasterProcess::~MasterProcess() {
  kill();
  std::error_code ignored;
  std::filesystem::remove_all(journal_, ignored);
}

void MasterProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void MasterProcess::start() {
  std::vector<std::string> words = {program_,
                                    "master",
                                    "--rpc_address=127.0.0.1",
                                    "--rpc_port=" + address_.substr(address_.rfind(':') + 1),
                                    "--metrics_host=127.0.0.1",
                                    "--metrics_port=auto",
                                    "--journal=" + journal_};
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) throw Failed("pipe");
  // This program may run on the load's processor already: back to where it began, then to the master's.
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t every;
    std::memset(&every, 0xff, sizeof every);
    sched_setaffinity(0, sizeof every, &every);
    pin_process(0);
    dup2(output[1], STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(output[1]);
  std::string line;
  for (char letter; read(output[0], &letter, 1) == 1 && letter != '\n';) line += letter;
  // Kept open by nobody: the master never writes again.
  close(output[0]);
  const std::string before = "listens on ";
  const size_t at = line.find(before);
  if (at == std::string::npos) throw Failed(program_ + " master did not start");
  const size_t from = at + before.size();
  address_ = line.substr(from, line.find(',', from) - from);
}

double MasterProcess::processor_seconds() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  std::string text;
  std::getline(file, text);
  unsigned long user = 0, system = 0;
  const size_t after = text.rfind(')');
  if (after == std::string::npos ||
      std::sscanf(text.c_str() + after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) !=
          2)
    throw Failed("the master has ended");
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t MasterProcess::resident_bytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  uint64_t size = 0, resident = 0;
  if (!(file >> size >> resident)) throw Failed("the master has ended");
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// ---- clients
// ---------------------------------------------------------------------------------------------------------------------------

Player::Player(const std::string& master, unsigned number, uint64_t segment_bytes)
    : name_("127.0.0.1:" + std::to_string(20'000 + number)) {
  MasterLink::Options options;
  options.master = master;
  options.name = name_;
  options.instance = tidewire::make_instance_id();
  membership_ = std::make_unique<Membership>(options.instance, name_, "host-" + std::to_string(number),
                                             static_cast<Membership::Io&>(*this));
  if (segment_bytes > 0) membership_->mount({0, name_, kBase, segment_bytes}, monotonic_now());
  Result<std::unique_ptr<MasterLink>> link = MasterLink::create(std::move(options), *this);
  if (!link.ok()) throw Failed(link.status().message());
  link_ = std::move(link).value();
  if (const tidewire::Status status = link_->start(); !status.ok()) throw Failed(status.message());
}

Player::~Player() {
  link_->stop();
}

void Player::wait_attached() const {
  const Nanos until = monotonic_now() + 30 * kSecond;
  while (!attached()) {
    if (monotonic_now() > until) throw Failed("the master does not take a client");
    pause();
  }
}

void Player::grow(uint64_t segment_bytes) {
  link_->post([this, segment_bytes] {
    SegmentInfo segment = membership_->segments().at(0);
    segment.size = segment_bytes;
    membership_->mount(segment, monotonic_now());
  });
}

void Player::ask(Body request, std::function<void(const Body*)> done) {
  link_->call(std::move(request), monotonic_now() + 10 * kSecond, [this, done = std::move(done)](Result<Body> answer) {
    done(answer.ok() ? &*answer : nullptr);
    tick();
  });
}

void Player::on_up() {
  membership_->on_connected(monotonic_now());
  tick();
}

void Player::on_request(uint64_t request, Body body) {
  membership_->on_request(request, body, monotonic_now());
  tick();
}

void Player::tick() {
  const Nanos next = membership_->tick(monotonic_now());
  if (next == kNever || next == ticking_at_) return;
  ticking_at_ = next;
  link_->run_at(next, [this, next] {
    if (ticking_at_ != next) return;
    ticking_at_ = kNever;
    tick();
  });
}

bool Player::has_space() {
  PutStart start;
  start.keys = {"space of " + name_};
  start.sizes = {kObjectBytes};
  start.options.resize(1);
  start.options[0].preferred_segments = {name_};
  const Nanos until = monotonic_now() + kSecond;
  const Result<Body> answer = link_->call_and_wait(std::move(start), until);
  const auto* started = answer.ok() ? std::get_if<PutStartAnswer>(&*answer) : nullptr;
  if (started == nullptr || started->puts.size() != 1 || started->puts[0].code != Code::kOk) return false;
  (void)link_->call_and_wait(PutRevoke{{{"space of " + name_, started->puts[0].version}}, true}, until);
  return started->puts[0].places.at(0).endpoint == name_;
}

void Player::put(std::vector<std::string> keys, std::function<void(const std::vector<Code>&)> done) {
  PutStart start;
  start.keys = keys;
  start.sizes.assign(keys.size(), kObjectBytes);
  start.options.resize(1);
  link_->call(std::move(start), monotonic_now() + 30 * kSecond,
              [this, keys = std::move(keys), done = std::move(done)](Result<Body> answer) mutable {
                const auto* started = answer.ok() ? std::get_if<PutStartAnswer>(&*answer) : nullptr;
                if (started == nullptr || started->puts.size() != keys.size()) return done({});
                end(*started, std::move(keys), std::move(done));
              });
}

void Player::end(const PutStartAnswer& started, std::vector<std::string> keys,
                 std::function<void(const std::vector<Code>&)> done) {
  std::vector<Code> codes;
  PutEnd end;
  for (size_t i = 0; i < keys.size(); ++i) {
    codes.push_back(started.puts[i].code);
    if (codes.back() == Code::kOk) end.puts.push_back({std::move(keys[i]), started.puts[i].version});
  }
  if (end.puts.empty()) return done(codes);
  end.checksums.assign(end.puts.size(), 1);
  end.written.assign(end.puts.size(), 1);
  link_->call(std::move(end), monotonic_now() + 30 * kSecond,
              [codes = std::move(codes), done = std::move(done)](Result<Body> answer) mutable {
                const auto* ended = answer.ok() ? std::get_if<CodesAnswer>(&*answer) : nullptr;
                if (ended == nullptr) return done({});
                auto next = ended->codes.begin();
                for (Code& code : codes)
                  if (code == Code::kOk) code = next == ended->codes.end() ? Code::kInternal : *next++;
                done(codes);
              });
}

Players make_players(const std::string& master, unsigned count, uint64_t segment_bytes) {
  Players players;
  for (unsigned i = 0; i < count; ++i) players.push_back(std::make_unique<Player>(master, i, segment_bytes));
  for (const auto& player : players) player->wait_attached();
  if (segment_bytes == 0) return players;
  // A master takes over before it gives out space, and asks each owner for its grant.
  const Nanos until = monotonic_now() + 30 * kSecond;
  for (const auto& player : players)
    while (!player->has_space()) {
      if (monotonic_now() > until) throw Failed("the master gives no space");
      pause();
    }
  return players;
}

void fill(Players& players, uint64_t first, uint64_t last, unsigned outstanding) {
  struct State {
    std::atomic<uint64_t> next, failed{0};
    std::atomic<int> code{0};
    Open open;
  } state{first};
  std::function<void(Player&)> put = [&](Player& player) {
    const uint64_t from = state.next.fetch_add(kBatch);
    if (from >= last) return state.open.end();
    std::vector<std::string> keys;
    for (uint64_t i = from; i < std::min(last, from + kBatch); ++i) keys.push_back(key_of(i));
    player.put(std::move(keys), [&](const std::vector<Code>& codes) {
      if (codes.empty()) ++state.failed;
      for (const Code code : codes)
        if (code != Code::kOk) ++state.failed, state.code = static_cast<int>(code);
      put(player);
    });
  };
  for (const auto& player : players)
    for (unsigned i = 0; i < outstanding; ++i) {
      state.open.begin();
      put(*player);
    }
  state.open.wait();
  if (state.failed > 0)
    throw Failed(std::to_string(state.failed) + " puts failed, the last with " + std::to_string(state.code));
}

}  // namespace bench
