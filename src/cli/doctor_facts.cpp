// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_facts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/unique_fd.h"
#include "topology/sysfs.h"

extern char** environ;

namespace tidewire::cli {
namespace {

namespace sysfs = topology::sysfs;

constexpr long kTmpfsMagic = 0x01021994;

// The selected word of "always [madvise] never".
std::string selected(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']', open);
  return open == std::string::npos || close == std::string::npos ? "" : text.substr(open + 1, close - open - 1);
}

uint64_t limit(rlim_t value) {
  return value == RLIM_INFINITY ? kUnlimited : value;
}

// Listening as an engine does; 0 or the errno.
int try_listen(int family, uint16_t port) {
  const UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  int result = 0;
  if (family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    result = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = in6addr_loopback;
    result = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  return result != 0 || ::listen(fd.get(), 1) != 0 ? errno : 0;
}

int try_port_range(const Settings& settings) {
  int last = 0;
  for (int64_t port = settings.port_min; port > 0 && port <= settings.port_max; ++port) {
    last = try_listen(AF_INET, static_cast<uint16_t>(port));
    if (last == 0) return 0;
  }
  return last;
}

int try_memfd() {
  const UniqueFd fd(::memfd_create("tidewire-doctor", MFD_CLOEXEC));
  if (!fd.valid() || ::ftruncate(fd.get(), 4096) != 0) return errno;
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return errno;
  std::memset(memory, 1, 4096);
  ::munmap(memory, 4096);
  return 0;
}

// A child reads its parent's memory: the direction that Yama's scope 1 refuses, as it does between unrelated processes.
int try_process_vm() {
  const pid_t parent = ::getpid();
  static uint64_t secret = 0x7469646577697265;
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    uint64_t copy = 0;
    const iovec local{&copy, sizeof copy}, remote{&secret, sizeof secret};
    const ssize_t got = ::process_vm_readv(parent, &local, 1, &remote, 1, 0);
    ::_exit(got == static_cast<ssize_t>(sizeof copy) && copy == secret ? 0 : std::min(got < 0 ? errno : EIO, 255));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

// As Tidewire loads libraries: a copy already in the process first, then the vendor's folder, then the linker's path.
Library look_for(const char* name, const char* vendor_folder, const std::function<std::string(void*)>& version) {
  Library library;
  void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!handle && *vendor_folder)
    handle = ::dlopen((std::string(vendor_folder) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return library;
  library.found = true;
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) library.path = map->l_name;
  library.version = version(handle);
  return library;  // stays loaded: drivers don't like to be unloaded, and the program ends soon
}

std::string fabric_version(void* handle) {
  const auto function = reinterpret_cast<uint32_t (*)()>(::dlsym(handle, "fi_version"));
  return function ? fmt::format("{}.{}", function() >> 16, function() & 0xffff) : "";
}

std::string cuda_version(void* handle) {
  const auto function = reinterpret_cast<int (*)(int*)>(::dlsym(handle, "cuDriverGetVersion"));
  int version = 0;
  return function && function(&version) == 0 ? fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10) : "";
}

std::string no_version(void*) {
  return "";
}

void count_devices(Facts* facts) {
  for (const std::string& name : sysfs::list("/dev/infiniband")) {
    if (!name.starts_with("uverbs")) continue;
    ++facts->uverbs;
    if (::access(("/dev/infiniband/" + name).c_str(), R_OK | W_OK) == 0) ++facts->uverbs_usable;
  }
  for (const std::string& name : sysfs::list("/dev")) {
    if (name.starts_with("neuron") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos) {
      ++facts->neuron_devices;
    }
  }
}

// Variables of the Python package, the scripts and the tests, which are no settings of an engine.
bool is_tool_variable(const std::string& name) {
  return name == "TIDEWIRE_LIBRARY" || name == "TIDEWIRE_JOBS" || name == "TIDEWIRE_BUILD" ||
         name.starts_with("TIDEWIRE_SIM_");
}

void check_settings(Facts* facts) {
  const Result<Settings> settings = Settings::load({});
  if (settings.ok()) {
    facts->settings = *settings;
    const Result<std::string> secret = load_secret(settings->secret_file);
    if (!secret.ok()) facts->secret_error = secret.status().message();
  } else {
    facts->settings_error = settings.status().message();
  }
  const std::vector<SettingRow> rows = describe_settings({});
  for (char** variable = environ; *variable; ++variable) {
    const std::string name = std::string(*variable).substr(0, std::string(*variable).find('='));
    if (!name.starts_with("TIDEWIRE_") || is_tool_variable(name)) continue;
    if (std::none_of(rows.begin(), rows.end(), [&](const SettingRow& row) { return row.environment == name; })) {
      facts->unknown_variables.push_back(name);
    }
  }
}

void check_limits(Facts* facts) {
  rlimit value{};
  if (::getrlimit(RLIMIT_NOFILE, &value) == 0) {
    facts->open_files = limit(value.rlim_cur);
    facts->open_files_most = limit(value.rlim_max);
  }
  if (::getrlimit(RLIMIT_MEMLOCK, &value) == 0) facts->locked_memory = limit(value.rlim_cur);
  const std::string ports = sysfs::read_text("/proc/sys/net/ipv4/ip_local_port_range");
  if (std::sscanf(ports.c_str(), "%d %d", &facts->port_range_first, &facts->port_range_last) != 2) {
    facts->port_range_first = facts->port_range_last = 0;
  }
  facts->socket_buffer_most = static_cast<uint64_t>(std::min(sysfs::read_integer("/proc/sys/net/core/rmem_max", 0),
                                                             sysfs::read_integer("/proc/sys/net/core/wmem_max", 0)));
}

void check_memory(Facts* facts) {
  facts->memfd = try_memfd();
  facts->process_vm = try_process_vm();
  facts->yama_scope = static_cast<int>(sysfs::read_integer("/proc/sys/kernel/yama/ptrace_scope", -1));
  struct statfs shm {};
  if (::statfs("/dev/shm", &shm) == 0 && shm.f_type == kTmpfsMagic) {
    facts->shm_mounted = true;
    facts->shm_size = shm.f_blocks * static_cast<uint64_t>(shm.f_bsize);
    facts->shm_free = shm.f_bavail * static_cast<uint64_t>(shm.f_bsize);
  }
  facts->thp_enabled = selected(sysfs::read_text("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts->shmem_enabled = selected(sysfs::read_text("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  const std::string pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  facts->huge_pages = static_cast<uint64_t>(sysfs::read_integer(pages + "nr_hugepages", 0));
  facts->huge_pages_free = static_cast<uint64_t>(sysfs::read_integer(pages + "free_hugepages", 0));
}

}  // namespace

Facts gather_facts() {
  Facts facts;
  facts.machine = topology::discover();
  check_settings(&facts);
  check_limits(&facts);
  check_memory(&facts);
  facts.bind_v4 = try_listen(AF_INET, 0);
  facts.bind_v6 = try_listen(AF_INET6, 0);
  facts.bind_range = try_port_range(facts.settings);
  facts.libfabric = look_for("libfabric.so.1", "/opt/amazon/efa/lib", fabric_version);
  facts.libibverbs = look_for("libibverbs.so.1", "", no_version);
  facts.libcuda = look_for("libcuda.so.1", "", cuda_version);
  facts.libnrt = look_for("libnrt.so.1", "/opt/aws/neuron/lib", no_version);
  count_devices(&facts);
  return facts;
}

}  // namespace tidewire::cli
