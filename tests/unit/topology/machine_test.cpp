// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if_arp.h>

#include <nlohmann/json.hpp>

#include "topology/machine_text.h"
#include "unit/topology/fake_sysfs.h"

namespace tidewire::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Discovery : public ::testing::Test {
 protected:
  Machine look() {
    Sources sources;
    sources.sysfs = tree_.root();
    sources.boot_id_file = tree_.root() + "/boot_id";
    sources.addresses = [this] { return addresses_; };
    return discover(sources);
  }
  testing::FakeSysfs tree_;
  AddressMap addresses_;
};

TEST_F(Discovery, AnEmptyTreeGivesAnEmptyMachine) {
  const Machine machine = look();
  EXPECT_THAT(machine.nics, IsEmpty());
  EXPECT_THAT(machine.numa, IsEmpty());
  EXPECT_EQ(machine.boot_id, "");
  EXPECT_FALSE(machine_json(machine).empty());
}

TEST_F(Discovery, AHardwareNicHasItsPlaceOnTheBus) {
  tree_.nic("eth0", ARPHRD_ETHER, 2);
  tree_.file("class/net/eth0/speed", "100000");
  tree_.file("devices/pci0000:00/0000:3b:00.0/numa_node", "1");
  tree_.link("class/net/eth0/device", "devices/pci0000:00/0000:3b:00.0");
  addresses_["eth0"] = {{"10.0.0.1", false, false}};
  const Machine machine = look();
  ASSERT_THAT(machine.nics, SizeIs(1));
  const Nic& nic = machine.nics[0];
  EXPECT_EQ(nic.kind, NicKind::kEthernet);
  EXPECT_TRUE(nic.up);
  EXPECT_EQ(nic.bits_per_second, 100'000'000'000u);
  EXPECT_EQ(nic.numa_node, 1);
  EXPECT_EQ(nic.pci, "0000:3b:00.0");
  EXPECT_EQ(nic.index, 2);
  EXPECT_EQ(nic.addresses.at(0).text, "10.0.0.1");
}

TEST_F(Discovery, AParavirtualNicIsFoundThroughItsParent) {
  tree_.nic("eth0", ARPHRD_ETHER, 2);
  tree_.file("class/net/eth0/speed", "-1");
  tree_.file("devices/pci0000:00/0000:00:03.0/numa_node", "-1");
  tree_.link("class/net/eth0/device", "devices/pci0000:00/0000:00:03.0/virtio2");
  const Nic nic = look().nics.at(0);
  EXPECT_EQ(nic.kind, NicKind::kEthernet);
  EXPECT_EQ(nic.pci, "0000:00:03.0");
  EXPECT_EQ(nic.bits_per_second, 0u);
  EXPECT_EQ(nic.numa_node, -1);
}

TEST_F(Discovery, KindsAreToldApart) {
  tree_.nic("bond0", ARPHRD_ETHER, 1, "DEVTYPE=bond");
  tree_.nic("docker0", ARPHRD_ETHER, 2, "DEVTYPE=bridge\nINTERFACE=docker0");
  tree_.nic("dummy0", ARPHRD_ETHER, 3);
  tree_.nic("eth0.5", ARPHRD_ETHER, 4, "DEVTYPE=vlan");
  tree_.nic("ib0", ARPHRD_INFINIBAND, 5);
  tree_.nic("lo", ARPHRD_LOOPBACK, 6);
  tree_.nic("veth1", ARPHRD_ETHER, 7);
  tree_.file("class/net/veth1/iflink", "70");
  tree_.link("class/net/veth1/master", "class/net/docker0");
  tree_.file("class/net/bonding_masters", "bond0");
  std::vector<std::string> kinds;
  const Machine machine = look();
  for (const Nic& nic : machine.nics) kinds.push_back(nic.name + "=" + kind_name(nic.kind));
  EXPECT_THAT(kinds, ElementsAre("bond0=bond", "docker0=bridge", "dummy0=virtual", "eth0.5=vlan", "ib0=infiniband",
                                 "lo=loopback", "veth1=veth"));
  EXPECT_EQ(machine.nic("veth1")->master, "docker0");
}

TEST_F(Discovery, AnInterfaceThatIsDownIsTold) {
  tree_.nic("eth0", ARPHRD_ETHER, 2);
  tree_.file("class/net/eth0/flags", "0x1002");
  EXPECT_FALSE(look().nics.at(0).up);
}

TEST_F(Discovery, FabricDevicesAreEfaRoceOrInfiniband) {
  tree_.file("class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet");
  tree_.file("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  tree_.file("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  tree_.link("class/infiniband/mlx5_0/device", "devices/pci0000:00/0000:40:00.0");
  tree_.file("devices/pci0000:00/0000:40:00.0/numa_node", "0");
  tree_.folder("devices/pci0000:00/0000:40:00.0/net/eth4");
  tree_.link("devices/pci0000:00/0000:40:00.0/driver", "bus/pci/drivers/mlx5_core");
  tree_.file("class/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand");
  tree_.file("class/infiniband/rdmap0s6/ports/1/link_layer", "Unspecified");
  tree_.link("class/infiniband/rdmap0s6/device", "devices/pci0000:00/0000:00:06.0");
  tree_.file("devices/pci0000:00/0000:00:06.0/vendor", "0x1d0f");
  tree_.file("devices/pci0000:00/0000:00:06.0/device", "0xefa2");
  tree_.file("class/infiniband/rxe0/ports/1/link_layer", "Ethernet");
  tree_.file("class/infiniband/rxe0/parent", "eth0");
  const Machine machine = look();
  ASSERT_THAT(machine.fabrics, SizeIs(4));
  const FabricDevice* roce = machine.fabric("mlx5_0");
  EXPECT_EQ(roce->kind, FabricKind::kRoce);
  EXPECT_EQ(roce->driver, "mlx5_core");
  EXPECT_EQ(roce->numa_node, 0);
  EXPECT_THAT(roce->nics, ElementsAre("eth4"));
  EXPECT_EQ(roce->ports.at(0).state, "ACTIVE");
  EXPECT_EQ(roce->ports.at(0).bits_per_second, 400'000'000'000u);
  EXPECT_EQ(machine.fabric("mlx5_1")->kind, FabricKind::kInfiniband);
  EXPECT_EQ(machine.fabric("rdmap0s6")->kind, FabricKind::kEfa);
  EXPECT_THAT(machine.fabric("rxe0")->nics, ElementsAre("eth0"));
}

TEST_F(Discovery, NumaNodesHaveProcessorsMemoryAndDistances) {
  const std::string node = "devices/system/node/node1";
  tree_.file(node + "/cpulist", "16-31,48-63");
  tree_.file(node + "/meminfo", "Node 1 MemTotal:       1024 kB\nNode 1 MemFree: 5 kB");
  tree_.file(node + "/distance", "21 10");
  tree_.folder("devices/system/node/power");
  tree_.folder("devices/system/node/nodes");
  const Machine machine = look();
  ASSERT_THAT(machine.numa, SizeIs(1));
  EXPECT_EQ(machine.numa[0].id, 1);
  EXPECT_EQ(machine.numa[0].cpu_count, 32);
  EXPECT_EQ(machine.numa[0].memory_bytes, 1024u * 1024u);
  EXPECT_THAT(machine.numa[0].distances, ElementsAre(21, 10));
}

TEST_F(Discovery, AcceleratorsAreNvidiaDisplaysAndNeuron) {
  const auto device = [&](const std::string& pci, const std::string& kind, const std::string& vendor,
                          const std::string& id) {
    tree_.file("bus/pci/devices/" + pci + "/class", kind);
    tree_.file("bus/pci/devices/" + pci + "/vendor", vendor);
    tree_.file("bus/pci/devices/" + pci + "/device", id);
    tree_.file("bus/pci/devices/" + pci + "/numa_node", "1");
  };
  device("0000:01:00.0", "0x030200", "0x10de", "0x2335");
  device("0000:01:00.1", "0x040300", "0x10de", "0x10f0");  // the audio function of a card
  device("0000:02:00.0", "0x030000", "0x1234", "0x1111");  // another vendor's display
  device("0000:03:00.0", "0x088000", "0x1d0f", "0x7364");
  device("0000:04:00.0", "0x020000", "0x1d0f", "0xec20");  // a NIC of the same vendor
  const Machine machine = look();
  ASSERT_THAT(machine.accelerators, SizeIs(2));
  EXPECT_EQ(machine.accelerators[0].kind, AcceleratorKind::kCuda);
  EXPECT_EQ(machine.accelerators[0].pci, "0000:01:00.0");
  EXPECT_EQ(machine.accelerators[1].kind, AcceleratorKind::kNeuron);
  EXPECT_EQ(machine.accelerators[1].numa_node, 1);
}

TEST_F(Discovery, JsonAndTableShowWhatWasFound) {
  tree_.nic("eth0", ARPHRD_ETHER, 2);
  addresses_["eth0"] = {{"10.0.0.1", false, false}};
  const Machine machine = look();
  const auto json = nlohmann::json::parse(machine_json(machine));
  EXPECT_EQ(json["nics"][0]["name"], "eth0");
  EXPECT_EQ(json["nics"][0]["addresses"][0], "10.0.0.1");
  EXPECT_TRUE(json["nics"][0]["bits_per_second"].is_null());
  EXPECT_TRUE(json["nics"][0]["numa_node"].is_null());
  EXPECT_THAT(machine_table(machine), HasSubstr("eth0"));
  EXPECT_THAT(machine_table(machine), HasSubstr("Accelerators: none"));
}

TEST(ThisMachine, HasALoopbackInterfaceWithItsAddress) {
  const Machine machine = discover();
  const Nic* loopback = machine.nic("lo");
  ASSERT_NE(loopback, nullptr);
  EXPECT_EQ(loopback->kind, NicKind::kLoopback);
  EXPECT_FALSE(machine.boot_id.empty());
}

}  // namespace
}  // namespace tidewire::topology
