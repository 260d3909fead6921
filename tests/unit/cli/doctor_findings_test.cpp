// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

namespace tidewire::cli {
namespace {

using ::testing::HasSubstr;

// A machine on which everything that TCP and same host need is right, and nothing else is there.
Facts good_facts() {
  Facts facts;
  topology::Nic nic;
  nic.name = "eth0";
  nic.kind = topology::NicKind::kEthernet;
  nic.up = true;
  nic.addresses = {{"10.0.0.1", false, false}};
  nic.bits_per_second = 25'000'000'000;
  facts.machine.nics = {nic};
  facts.settings.secret_file = "/etc/secret";
  facts.open_files = facts.open_files_most = 65536;
  facts.locked_memory = kUnlimited;
  facts.port_range_first = 32768;
  facts.port_range_last = 60999;
  facts.socket_buffer_most = 64 << 20;
  facts.shm_mounted = true;
  facts.shm_size = facts.shm_free = uint64_t{8} << 30;
  facts.thp_enabled = "madvise";
  facts.shmem_enabled = "advise";
  return facts;
}

void add_fabric(Facts* facts, const std::string& name, topology::FabricKind kind) {
  topology::FabricDevice device;
  device.name = name;
  device.kind = kind;
  device.ports = {{1, "ACTIVE", "Ethernet", 100'000'000'000}};
  facts->machine.fabrics.push_back(device);
}

void add_accelerator(Facts* facts, topology::AcceleratorKind kind) {
  topology::Accelerator device;
  device.kind = kind;
  facts->machine.accelerators.push_back(device);
}

const Finding* find(const std::vector<Finding>& findings, const std::string& id, const std::string& area = "") {
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& each) {
    return each.id == id && (area.empty() || each.area == area);
  });
  return found == findings.end() ? nullptr : &*found;
}

void expect(const Facts& facts, const std::string& id, Severity severity, const std::string& text,
            const std::string& remedy, const std::string& area = "") {
  const std::vector<Finding> findings = judge(facts);
  const Finding* finding = find(findings, id, area);
  ASSERT_NE(finding, nullptr) << id;
  EXPECT_EQ(finding->severity, severity) << id << ": " << finding->text;
  EXPECT_THAT(finding->text, HasSubstr(text));
  EXPECT_THAT(finding->remedy, HasSubstr(remedy));
}

TEST(Doctor, AGoodMachineHasNoWarnings) {
  for (const Finding& finding : judge(good_facts()))
    EXPECT_LE(finding.severity, Severity::kInfo) << finding.id << ": " << finding.text;
}

TEST(Doctor, EveryWarningAndProblemHasARemedy) {
  Facts facts;  // nothing works
  facts.bind_v4 = facts.bind_v6 = facts.bind_range = EACCES;
  facts.memfd = facts.process_vm = EPERM;
  facts.settings_error = "setting x: bad";
  facts.thp_enabled = "never";
  add_fabric(&facts, "rdmap0s6", topology::FabricKind::kEfa);
  add_fabric(&facts, "mlx5_0", topology::FabricKind::kRoce);
  add_accelerator(&facts, topology::AcceleratorKind::kCuda);
  add_accelerator(&facts, topology::AcceleratorKind::kNeuron);
  int bad = 0;
  for (const Finding& finding : judge(facts)) {
    if (finding.severity < Severity::kWarning) continue;
    ++bad;
    EXPECT_FALSE(finding.remedy.empty()) << finding.id;
  }
  EXPECT_GE(bad, 12);
}

TEST(Doctor, BadSettingsAndSecretsAreProblems) {
  Facts facts = good_facts();
  facts.settings_error = "setting connect.timeout: bad value";
  expect(facts, "settings", Severity::kProblem, "connect.timeout", "correct");
  facts = good_facts();
  facts.secret_error = "'/etc/secret' may be read by others";
  expect(facts, "secret", Severity::kProblem, "/etc/secret", "");
}

TEST(Doctor, MisspelledVariablesAreNamed) {
  Facts facts = good_facts();
  facts.unknown_variables = {"TIDEWIRE_TRANSFER_TIMOUT"};
  expect(facts, "unknown_variables", Severity::kWarning, "TIDEWIRE_TRANSFER_TIMOUT", "--settings");
}

TEST(Doctor, NoPortAtAllIsAProblemAndOneFamilyIsNot) {
  Facts facts = good_facts();
  facts.bind_v6 = EADDRNOTAVAIL;
  EXPECT_EQ(find(judge(facts), "listen"), nullptr);
  expect(facts, "ipv6", Severity::kInfo, "Cannot assign", "disable_ipv6");
  facts.bind_v4 = EACCES;
  expect(facts, "listen", Severity::kProblem, "", "");
}

TEST(Doctor, AFullPortRangeIsAProblem) {
  Facts facts = good_facts();
  facts.settings.port_min = 5000;
  facts.settings.port_max = 5003;
  facts.bind_range = EADDRINUSE;
  expect(facts, "ports", Severity::kProblem, "5000 to 5003", "ss -ltnp");
}

TEST(Doctor, FewDescriptorsAndPortsAreWarnings) {
  Facts facts = good_facts();
  facts.open_files = 1024;
  facts.port_range_last = facts.port_range_first + 63;
  expect(facts, "open_files", Severity::kWarning, "1024", "ulimit -n");
  expect(facts, "ephemeral_ports", Severity::kWarning, "64", "ip_local_port_range");
}

TEST(Doctor, YamaIsToldFromASandbox) {
  Facts facts = good_facts();
  facts.process_vm = EPERM;
  facts.yama_scope = 1;
  expect(facts, "process_vm", Severity::kWarning, "ptrace_scope is 1", "same_host.allow_ptrace=1");
  facts.settings.ptracer = true;
  expect(facts, "process_vm", Severity::kOk, "allow_ptrace", "");
  facts.yama_scope = -1;
  expect(facts, "process_vm", Severity::kWarning, "refused", "SYS_PTRACE");
}

TEST(Doctor, SmallPagesForSharedPoolsAreToldWithTheSetting) {
  Facts facts = good_facts();
  facts.shmem_enabled = "never";
  expect(facts, "huge_pages", Severity::kWarning, "small pages", "shmem_enabled");
  facts.huge_pages = 512;
  expect(facts, "huge_pages", Severity::kOk, "512 huge pages", "");
}

TEST(Doctor, LockedMemoryMattersOnlyWhereADeviceRegistersIt) {
  Facts facts = good_facts();
  facts.locked_memory = 8 << 20;
  expect(facts, "memlock", Severity::kInfo, "8 MiB", "");
  add_fabric(&facts, "mlx5_0", topology::FabricKind::kRoce);
  expect(facts, "memlock", Severity::kWarning, "8 MiB", "memlock=-1");
}

TEST(Doctor, EfaAndVerbsAreToldApart) {
  Facts facts = good_facts();
  add_fabric(&facts, "rdmap0s6", topology::FabricKind::kEfa);
  expect(facts, "efa", Severity::kInfo, "rdmap0s6 (efa, ACTIVE)", "does not drive it yet", "fabric");
  expect(facts, "libfabric", Severity::kWarning, "libfabric is not", "/opt/amazon/efa");
  expect(facts, "verbs", Severity::kInfo, "no InfiniBand or RoCE device", "", "verbs");
  expect(facts, "device_files", Severity::kWarning, "no /dev/infiniband", "--device", "fabric");
  facts.uverbs = 2;
  facts.uverbs_usable = 1;
  expect(facts, "device_files", Severity::kWarning, "1 of 2", "udev", "fabric");
}

TEST(Doctor, AcceleratorsWithoutTheirLibrariesAreWarnings) {
  Facts facts = good_facts();
  expect(facts, "cuda", Severity::kInfo, "no NVIDIA device", "");
  expect(facts, "neuron", Severity::kInfo, "no Neuron device", "");
  add_accelerator(&facts, topology::AcceleratorKind::kCuda);
  add_accelerator(&facts, topology::AcceleratorKind::kNeuron);
  expect(facts, "cuda", Severity::kWarning, "libcuda.so.1 is missing", "--gpus all");
  expect(facts, "neuron", Severity::kWarning, "libnrt.so.1 is missing", "aws-neuronx");
  facts.libcuda = {true, "/usr/lib/libcuda.so.1", "CUDA 12.4"};
  expect(facts, "cuda", Severity::kInfo, "CUDA 12.4 (/usr/lib/libcuda.so.1); 1 NVIDIA",
         "not supported by this version");
}

TEST(Doctor, JsonAndTextCarryTheSame) {
  const std::vector<Finding> findings = {{"a", "tcp", Severity::kWarning, "text \xff", "do this"},
                                         {"b", "tcp", Severity::kOk, "fine", ""}};
  const auto json = nlohmann::json::parse(findings_json(findings));
  EXPECT_EQ(json["findings"][0]["severity"], "warning");
  EXPECT_EQ(json["findings"][0]["remedy"], "do this");
  EXPECT_TRUE(json["findings"][1]["remedy"].is_null());
  EXPECT_THAT(findings_text(findings), HasSubstr("-> do this"));
  EXPECT_THAT(findings_text(findings), HasSubstr("0 problems, 1 warnings"));
}

TEST(DoctorFacts, ThisMachineIsLookedAtWithoutHarm) {
  const Facts facts = gather_facts();
  EXPECT_GT(facts.open_files, 0u);
  EXPECT_EQ(facts.memfd, 0);
  EXPECT_NE(facts.machine.nic("lo"), nullptr);
  EXPECT_FALSE(judge(facts).empty());
}

}  // namespace
}  // namespace tidewire::cli
