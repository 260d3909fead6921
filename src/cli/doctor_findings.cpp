// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/size.h"

namespace tidewire::cli {
namespace {

constexpr uint64_t kEnoughFiles = 4096;
constexpr uint64_t kEnoughLocked = uint64_t{1} << 30;
constexpr uint64_t kSmallShm = uint64_t{1} << 30;
constexpr int kFewPorts = 1000;

// What this version drives; the others are looked at so that their set-up can be checked beforehand.
constexpr char kNotYet[] = "this version of Tidewire does not drive it yet: use protocol auto or tcp";

class Findings {
 public:
  explicit Findings(const char* area) : area_(area) {}
  void ok(const char* id, std::string text) { add(id, Severity::kOk, std::move(text), ""); }
  void info(const char* id, std::string text, std::string remedy = "") {
    add(id, Severity::kInfo, std::move(text), std::move(remedy));
  }
  void warning(const char* id, std::string text, std::string remedy) {
    add(id, Severity::kWarning, std::move(text), std::move(remedy));
  }
  void problem(const char* id, std::string text, std::string remedy) {
    add(id, Severity::kProblem, std::move(text), std::move(remedy));
  }
  std::vector<Finding> take() { return std::move(list_); }

 private:
  void add(const char* id, Severity severity, std::string text, std::string remedy) {
    list_.push_back({id, area_, severity, std::move(text), std::move(remedy)});
  }
  const char* area_;
  std::vector<Finding> list_;
};

std::string error_name(int error) {
  return std::strerror(error);
}  // NOLINT(concurrency-mt-unsafe): one thread

std::string limit_text(uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : size_text(bytes);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

std::string library_text(const char* name, const Library& library) {
  return fmt::format("{}{}{} ({})", name, library.version.empty() ? "" : " ", library.version, library.path);
}

std::vector<Finding> settings(const Facts& facts) {
  Findings out("settings");
  if (!facts.settings_error.empty()) {
    out.problem("settings", facts.settings_error, "correct the value; engines refuse to start with it");
  } else if (!facts.secret_error.empty()) {
    out.problem("secret", facts.secret_error, "engines refuse to start until the file is right");
  } else {
    out.ok("settings", "all settings are valid (tidewire doctor --settings shows them)");
  }
  if (!facts.unknown_variables.empty()) {
    out.warning("unknown_variables", "no setting has these names: " + joined(facts.unknown_variables),
                "look for a typing error; tidewire doctor --settings lists the names");
  }
  if (facts.settings_error.empty() && facts.settings.secret_file.empty()) {
    out.info("no_secret", "no cluster secret: whoever reaches an engine's port can use its regions",
             "outside of a closed network set TIDEWIRE_SECRET_FILE on every host (openssl rand -hex 32 > FILE; chmod "
             "600 FILE)");
  }
  return out.take();
}

std::vector<Finding> tcp(const Facts& facts) {
  Findings out("tcp");
  std::vector<std::string> nics;
  for (const topology::Nic& nic : facts.machine.nics) {
    if (!nic.up || nic.addresses.empty() || nic.kind == topology::NicKind::kLoopback) continue;
    nics.push_back(nic.bits_per_second
                       ? fmt::format("{} ({} Gbit/s)", nic.name, static_cast<double>(nic.bits_per_second) / 1e9)
                       : nic.name);
  }
  if (nics.empty()) {
    out.warning("interfaces", "no interface but loopback is up and has an address",
                "other hosts can't be reached; check `ip address`");
  } else {
    out.ok("interfaces", "interfaces that can be rails: " + joined(nics));
  }
  if (facts.bind_v4 == 0) {
    out.ok("ipv4", "listening on IPv4 works");
  } else {
    out.warning("ipv4", "listening on 127.0.0.1 fails: " + error_name(facts.bind_v4),
                "use IPv6 addresses, or bring up lo (ip link set lo up)");
  }
  if (facts.bind_v6 == 0) {
    out.ok("ipv6", "listening on IPv6 works");
  } else {
    out.info("ipv6", "listening on ::1 fails: " + error_name(facts.bind_v6),
             "only where IPv6 is wanted: sysctl -w net.ipv6.conf.all.disable_ipv6=0");
  }
  if (facts.bind_v4 != 0 && facts.bind_v6 != 0) {
    out.problem("listen", "no port can be listened on",
                "an engine can't start here; look at the sandbox's or container's rules");
  }
  if (facts.bind_range != 0) {
    out.problem("ports",
                fmt::format("no port of {} to {} (port.min, port.max) is free: {}", facts.settings.port_min,
                            facts.settings.port_max, error_name(facts.bind_range)),
                "choose another range, or end what uses it (ss -ltnp)");
  }
  const int ports = facts.port_range_last - facts.port_range_first + 1;
  if (facts.port_range_first > 0 && ports < kFewPorts) {
    out.warning("ephemeral_ports", fmt::format("only {} local ports for outgoing connections", ports),
                "sysctl -w net.ipv4.ip_local_port_range='32768 60999'");
  }
  if (facts.open_files < kEnoughFiles) {
    out.warning("open_files",
                fmt::format("at most {} open files (hard limit {}): few peers fit", facts.open_files,
                            facts.open_files_most == kUnlimited ? "unlimited" : std::to_string(facts.open_files_most)),
                "ulimit -n 65536, LimitNOFILE=65536 in a systemd unit, or --ulimit nofile=65536 for a container");
  } else {
    out.ok("open_files", facts.open_files == kUnlimited ? "open files are not limited"
                                                        : fmt::format("{} open files allowed", facts.open_files));
  }
  const uint64_t wanted = static_cast<uint64_t>(facts.settings.socket_buffer);
  if (facts.socket_buffer_most > 0 && wanted > facts.socket_buffer_most) {
    out.info("socket_buffers",
             fmt::format("the kernel caps socket buffers at {}, tcp.socket_buffer asks for {}",
                         size_text(facts.socket_buffer_most), size_text(wanted)),
             fmt::format("for fast links over long distances: sysctl -w net.core.rmem_max={0} net.core.wmem_max={0}",
                         wanted));
  }
  return out.take();
}

std::vector<Finding> same_host(const Facts& facts) {
  Findings out("same host");
  if (facts.memfd == 0) {
    out.ok("memfd", "memory that peers on this host can map works");
  } else {
    out.warning("memfd", "memory that peers can map can't be made: " + error_name(facts.memfd),
                "same-host transfers fall back to TCP; allow memfd_create in the sandbox, check the memory limit of "
                "the container");
  }
  if (facts.process_vm == 0) {
    out.ok("process_vm", "copying straight from another process's memory works");
  } else if (facts.settings.ptracer && facts.yama_scope == 1) {
    out.ok("process_vm", "copying from another process's memory is allowed through same_host.allow_ptrace");
  } else if (facts.yama_scope > 0) {
    out.warning("process_vm",
                fmt::format("copying from another process's memory is refused ({}); Yama's ptrace_scope is {}",
                            error_name(facts.process_vm), facts.yama_scope),
                facts.yama_scope == 1 ? "set same_host.allow_ptrace=1 (TIDEWIRE_SAME_HOST_ALLOW_PTRACE=1), or sysctl "
                                        "-w kernel.yama.ptrace_scope=0; "
                                        "until then memory that is not from tw_allocate goes over TCP"
                                      : "sysctl -w kernel.yama.ptrace_scope=1 (3 needs a reboot) and set "
                                        "same_host.allow_ptrace=1; until then memory that is "
                                        "not from tw_allocate goes over TCP");
  } else {
    out.warning("process_vm", "copying from another process's memory is refused: " + error_name(facts.process_vm),
                "a sandbox forbids process_vm_readv: give the container --cap-add SYS_PTRACE or a seccomp profile that "
                "allows it; until then memory "
                "that is not from tw_allocate goes over TCP");
  }
  if (!facts.shm_mounted) {
    out.info("dev_shm", "/dev/shm is not there; Tidewire does not need it, frameworks often do");
  } else if (facts.shm_size < kSmallShm) {
    out.info("dev_shm",
             fmt::format("/dev/shm has {} ({} free); Tidewire does not need it, frameworks often do",
                         size_text(facts.shm_size), size_text(facts.shm_free)),
             "docker run --shm-size=16g, or an emptyDir of medium Memory in Kubernetes");
  } else {
    out.ok("dev_shm", fmt::format("/dev/shm has {} ({} free)", size_text(facts.shm_size), size_text(facts.shm_free)));
  }
  const bool shmem = facts.shmem_enabled == "always" || facts.shmem_enabled == "within_size" ||
                     facts.shmem_enabled == "advise" || facts.shmem_enabled == "force";
  if (facts.huge_pages > 0) {
    out.ok("huge_pages", fmt::format("{} huge pages of 2 MiB, {} free", facts.huge_pages, facts.huge_pages_free));
  } else if (shmem) {
    out.ok("huge_pages", "no reserved huge pages; shared pools get transparent ones");
  } else {
    out.warning(
        "huge_pages",
        "pools that peers map get small pages: no reserved huge pages, and transparent ones are off for shared memory",
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or reserve some: sysctl -w "
        "vm.nr_hugepages=N");
  }
  if (facts.thp_enabled == "never") {
    out.warning("thp", "transparent huge pages are off", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  } else if (!facts.thp_enabled.empty()) {
    out.ok("thp", "transparent huge pages: " + facts.thp_enabled);
  }
  return out.take();
}

std::vector<std::string> devices_of(const Facts& facts, bool efa) {
  std::vector<std::string> names;
  for (const topology::FabricDevice& device : facts.machine.fabrics) {
    if ((device.kind == topology::FabricKind::kEfa) != efa) continue;
    const std::string state = device.ports.empty() ? "no port" : device.ports[0].state;
    names.push_back(fmt::format("{} ({}, {})", device.name, kind_name(device.kind), state));
  }
  return names;
}

void judge_access(const Facts& facts, Findings* out) {
  if (facts.uverbs == 0) {
    out->warning("device_files", "there are no /dev/infiniband/uverbs* files",
                 "give the container its devices (--device=/dev/infiniband), or load the module ib_uverbs");
  } else if (facts.uverbs_usable < facts.uverbs) {
    out->warning("device_files",
                 fmt::format("{} of {} /dev/infiniband/uverbs* files may be used by this user", facts.uverbs_usable,
                             facts.uverbs),
                 "chmod 666 them by a udev rule, or run as a user of their group");
  }
  if (facts.locked_memory < kEnoughLocked) {
    out->warning(
        "memlock",
        "only " + limit_text(facts.locked_memory) + " may be locked: registering memory with a device will fail",
        "ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, or --ulimit memlock=-1 for a container");
  } else {
    out->ok("memlock", "locked memory: " + limit_text(facts.locked_memory));
  }
}

std::vector<Finding> fabric(const Facts& facts) {
  Findings out("fabric");
  const std::vector<std::string> devices = devices_of(facts, true);
  if (facts.libfabric.found) {
    out.ok("libfabric", library_text("libfabric", facts.libfabric));
  } else if (devices.empty()) {
    out.info("libfabric", "libfabric is not installed; it is needed for EFA only");
  } else {
    out.warning("libfabric", "EFA devices are here, but libfabric is not",
                "install the EFA software (/opt/amazon/efa) inside the container too");
  }
  if (devices.empty()) {
    out.info("efa", "no EFA device");
  } else {
    out.info("efa", "EFA devices: " + joined(devices), kNotYet);
    judge_access(facts, &out);
  }
  return out.take();
}

std::vector<Finding> verbs(const Facts& facts) {
  Findings out("verbs");
  const std::vector<std::string> devices = devices_of(facts, false);
  if (devices.empty()) {
    out.info("verbs", "no InfiniBand or RoCE device: protocol rdma uses TCP here");
    if (facts.locked_memory < kEnoughLocked)
      out.info("memlock",
               "locked memory is limited to " + limit_text(facts.locked_memory) + "; TCP and same host need none");
    return out.take();
  }
  out.info("verbs", "InfiniBand-class devices: " + joined(devices), kNotYet);
  if (facts.libibverbs.found) {
    out.ok("libibverbs", library_text("libibverbs", facts.libibverbs));
  } else {
    out.warning("libibverbs", "the devices are here, but libibverbs is not",
                "install rdma-core (libibverbs1 and ibverbs-providers)");
  }
  judge_access(facts, &out);
  return out.take();
}

std::vector<Finding> accelerators(const Facts& facts) {
  const auto count = [&](topology::AcceleratorKind kind) {
    return std::count_if(facts.machine.accelerators.begin(), facts.machine.accelerators.end(),
                         [&](const auto& each) { return each.kind == kind; });
  };
  Findings cuda("cuda");
  const auto gpus = count(topology::AcceleratorKind::kCuda);
  if (gpus == 0 && !facts.libcuda.found) {
    cuda.info("cuda", "no NVIDIA device and no driver library");
  } else if (!facts.libcuda.found) {
    cuda.warning("cuda", fmt::format("{} NVIDIA devices, but libcuda.so.1 is missing", gpus),
                 "install the driver, or start the container with --gpus all");
  } else {
    cuda.info("cuda", fmt::format("{}; {} NVIDIA devices", library_text("libcuda", facts.libcuda), gpus),
              "device pointers are recognised; moving device memory is not supported by this version");
  }
  Findings neuron("neuron");
  const auto chips = count(topology::AcceleratorKind::kNeuron);
  if (chips == 0 && facts.neuron_devices == 0) {
    neuron.info("neuron", facts.libnrt.found ? "libnrt is installed, no Neuron device" : "no Neuron device");
  } else if (!facts.libnrt.found) {
    neuron.warning(
        "neuron",
        fmt::format("{} Neuron devices, but libnrt.so.1 is missing", std::max<int64_t>(chips, facts.neuron_devices)),
        "install aws-neuronx-runtime-lib");
  } else if (facts.neuron_devices == 0) {
    neuron.warning("neuron", fmt::format("{} Neuron chips, but no /dev/neuron* file", chips),
                   "install aws-neuronx-dkms on the host and give the container its devices (--device=/dev/neuron0)");
  } else {
    neuron.info("neuron",
                fmt::format("{}; {} device files", library_text("libnrt", facts.libnrt), facts.neuron_devices),
                "moving device memory is not supported by this version");
  }
  std::vector<Finding> all = cuda.take();
  for (Finding& finding : neuron.take()) all.push_back(std::move(finding));
  return all;
}

}  // namespace

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kProblem:
      return "problem";
  }
  return "unknown";
}

std::vector<Finding> judge(const Facts& facts) {
  std::vector<Finding> all;
  for (const auto part : {settings, tcp, same_host, fabric, verbs, accelerators}) {
    for (Finding& finding : part(facts)) all.push_back(std::move(finding));
  }
  return all;
}

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"id", finding.id},
                    {"area", finding.area},
                    {"severity", severity_name(finding.severity)},
                    {"text", finding.text},
                    {"remedy", finding.remedy.empty() ? nlohmann::ordered_json(nullptr)
                                                      : nlohmann::ordered_json(finding.remedy)}});
  }
  const nlohmann::ordered_json root = {{"findings", list}};
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string out, area;
  std::map<Severity, int> counts;
  for (const Finding& finding : findings) {
    if (finding.area != area) out += (area.empty() ? "" : "\n") + finding.area + "\n";
    area = finding.area;
    ++counts[finding.severity];
    out += fmt::format("  {:<8} {}\n", severity_name(finding.severity), finding.text);
    if (!finding.remedy.empty()) out += fmt::format("           -> {}\n", finding.remedy);
  }
  return out + fmt::format("\n{} problems, {} warnings\n", counts[Severity::kProblem], counts[Severity::kWarning]);
}

}  // namespace tidewire::cli
