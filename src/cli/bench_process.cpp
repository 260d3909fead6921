// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tidewire::cli::bench {
namespace {

constexpr int kStartMilliseconds = 60'000;  // populating a large pool takes its time

std::string read_line(int fd) {
  std::string line;
  const double end = now() + kStartMilliseconds / 1e3;
  while (now() < end) {
    pollfd poll_fd{fd, POLLIN, 0};
    if (poll(&poll_fd, 1, 1000) <= 0) continue;
    char byte;
    const ssize_t got = read(fd, &byte, 1);
    if (got <= 0) break;
    if (byte == '\n') return line;
    line += byte;
  }
  throw BenchError("the target process ended before it was ready; its own message stands above");
}

double seconds_of(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time)) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

TargetProcess::TargetProcess(const Options& options, uint64_t bytes) {
  std::vector<std::string> arguments = {"/proc/self/exe", "bench",      "target",         "--bytes",       std::to_string(bytes),
                                        "--protocol",     options.protocol, "--memory", options.memory, "--local",
                                        options.local.empty() ? "127.0.0.1" : options.local.substr(0, options.local.find(':'))};
  const std::string& devices = options.target_devices.empty() ? options.devices : options.target_devices;
  if (!devices.empty()) arguments.insert(arguments.end(), {"--devices", devices});
  if (!options.metadata.empty()) arguments.insert(arguments.end(), {"--metadata", options.metadata});
  for (const std::string& setting : options.settings) arguments.insert(arguments.end(), {"--set", setting});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);

  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC)) throw BenchError(fmt::format("pipe: {}", std::strerror(errno)));
  pid_ = fork();
  if (pid_ < 0) throw BenchError(fmt::format("fork: {}", std::strerror(errno)));
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(input[0], 0);
    dup2(output[1], 1);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  input_ = input[1];
  const std::string line = read_line(output[0]);
  close(output[0]);
  const nlohmann::json said = nlohmann::json::parse(line, nullptr, false);
  if (!said.is_object()) throw BenchError(fmt::format("the target process said '{}'", line));
  address_ = said.value("address", "");
  sink_port_ = said.value("sink_port", uint16_t{0});
}

TargetProcess::~TargetProcess() {
  if (pid_ <= 0) return;
  resume();
  close(input_);
  for (int i = 0; i < 300; ++i) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    usleep(10'000);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

double TargetProcess::cpu_seconds() const {
  clockid_t clock;
  return clock_getcpuclockid(pid_, &clock) ? 0 : seconds_of(clock);
}

void TargetProcess::stop() const { kill(pid_, SIGSTOP); }
void TargetProcess::resume() const { kill(pid_, SIGCONT); }

double own_cpu_seconds() { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace tidewire::cli::bench
