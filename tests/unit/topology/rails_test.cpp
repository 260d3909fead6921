// SPDX-License-Identifier: Apache-2.0
#include "topology/rails.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidewire::topology {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Nic nic(const std::string& name, NicKind kind, int index, std::vector<NicAddress> addresses) {
  Nic result;
  result.name = name;
  result.kind = kind;
  result.index = index;
  result.up = true;
  result.addresses = std::move(addresses);
  return result;
}

// A host with two fabrics, a container bridge, and the same link-local address on two interfaces.
Machine host() {
  Machine machine;
  machine.nics = {
      nic("lo", NicKind::kLoopback, 1, {{"127.0.0.1", false, false}, {"::1", true, false}}),
      nic("eth0", NicKind::kEthernet, 2,
          {{"10.0.0.1", false, false}, {"fe80::1%eth0", true, true}, {"2001:db8::1", true, false}}),
      nic("eth1", NicKind::kEthernet, 3, {{"fe80::1%eth1", true, true}, {"10.0.1.1", false, false}}),
      nic("v6only", NicKind::kEthernet, 4, {{"fe80::2%v6only", true, true}, {"2001:db8:1::1", true, false}}),
      nic("docker0", NicKind::kBridge, 5, {{"172.17.0.1", false, false}}),
      nic("bare", NicKind::kEthernet, 6, {}),
      nic("off", NicKind::kEthernet, 7, {{"10.0.9.1", false, false}}),
  };
  machine.nics[1].bits_per_second = 25'000'000'000;
  machine.nics[1].numa_node = 1;
  machine.nics[6].up = false;
  FabricDevice roce;
  roce.name = "mlx5_0";
  roce.nics = {"eth1"};
  FabricDevice efa;
  efa.name = "rdmap0s6";
  efa.kind = FabricKind::kEfa;
  machine.fabrics = {roce, efa};
  return machine;
}

std::vector<std::string> choose(const std::string& advertised, const std::vector<std::string>& devices = {}) {
  const Result<std::vector<RailAddress>> rails = choose_rails(host(), advertised, devices);
  EXPECT_TRUE(rails.ok()) << rails.status().to_string();
  std::vector<std::string> texts;
  if (rails.ok()) {
    for (const RailAddress& rail : *rails) texts.push_back(rail.nic + " " + rail.address);
  }
  return texts;
}

std::string refused(const std::string& advertised, const std::vector<std::string>& devices = {}) {
  const Result<std::vector<RailAddress>> rails = choose_rails(host(), advertised, devices);
  EXPECT_EQ(rails.status().code(), Code::kInvalidArgument) << advertised;
  return rails.status().message();
}

TEST(Rails, TheAdvertisedAddressesInterfaceIsTheOnlyRail) {
  EXPECT_THAT(choose("10.0.0.1"), ElementsAre("eth0 10.0.0.1"));
  EXPECT_THAT(choose("2001:db8::1"), ElementsAre("eth0 2001:db8::1"));
  EXPECT_THAT(choose("127.0.0.1"), ElementsAre("lo 127.0.0.1"));
  EXPECT_THAT(choose("::1"), ElementsAre("lo ::1"));
}

TEST(Rails, ARailKnowsItsInterface) {
  const std::vector<RailAddress> rails = *choose_rails(host(), "10.0.0.1", {});
  EXPECT_EQ(rails.at(0).bits_per_second, 25'000'000'000u);
  EXPECT_EQ(rails.at(0).numa_node, 1);
  EXPECT_FALSE(rails.at(0).v6);
}

TEST(Rails, AContainerBridgeNeverBecomesARailByItself) {
  for (const char* advertised : {"10.0.0.1", "127.0.0.1", "::1", "2001:db8::1"}) {
    EXPECT_THAT(choose(advertised), Not(::testing::Contains(HasSubstr("docker0"))));
  }
  EXPECT_THAT(choose("10.0.0.1", {"eth0", "eth1"}), Not(::testing::Contains(HasSubstr("docker0"))));
  EXPECT_THAT(choose("10.0.0.1", {"docker0"}), ElementsAre("docker0 172.17.0.1"));
}

TEST(Rails, NamedInterfacesAreTakenInTheirOrderAndOnce) {
  EXPECT_THAT(choose("10.0.0.1", {"eth1", "eth0", "eth1"}), ElementsAre("eth1 10.0.1.1", "eth0 10.0.0.1"));
}

TEST(Rails, ANamedInterfaceGivesTheAdvertisedFamilyBeforeTheOther) {
  EXPECT_THAT(choose("2001:db8::1", {"eth0", "v6only"}), ElementsAre("eth0 2001:db8::1", "v6only 2001:db8:1::1"));
  EXPECT_THAT(choose("10.0.0.1", {"v6only"}), ElementsAre("v6only 2001:db8:1::1"));
  EXPECT_THAT(choose("2001:db8::1", {"eth1"}), ElementsAre("eth1 fe80::1%eth1"));
}

TEST(Rails, AnInfinibandClassDeviceStandsForItsInterface) {
  EXPECT_THAT(choose("10.0.0.1", {"mlx5_0", "eth1"}), ElementsAre("eth1 10.0.1.1"));
  EXPECT_THAT(refused("10.0.0.1", {"rdmap0s6"}), AllOf(HasSubstr("rdmap0s6"), HasSubstr("efa"), HasSubstr("eth0")));
}

TEST(Rails, EveryLoopbackAddressIsOnTheLoopbackInterface) {
  EXPECT_THAT(choose("127.1.2.3"), ElementsAre("lo 127.1.2.3"));
}

TEST(Rails, SpellingsOfOneAddressAreOne) {
  EXPECT_THAT(choose("2001:0db8:0::0001"), ElementsAre("eth0 2001:0db8:0::0001"));
  EXPECT_THAT(choose("::ffff:10.0.0.1"), ElementsAre("eth0 ::ffff:10.0.0.1"));
}

TEST(Rails, LinkLocalAddressesNeedTheirScopeWhereTheyAreAmbiguous) {
  EXPECT_THAT(choose("fe80::1%eth1"), ElementsAre("eth1 fe80::1%eth1"));
  EXPECT_THAT(choose("fe80::1%3"), ElementsAre("eth1 fe80::1%3"));
  EXPECT_THAT(choose("fe80::2"), ElementsAre("v6only fe80::2"));
  refused("fe80::1");
  refused("fe80::1%docker0");
}

TEST(Rails, AForeignAddressIsRefusedUnlessInterfacesAreNamed) {
  EXPECT_THAT(refused("192.0.2.1"), AllOf(HasSubstr("192.0.2.1"), HasSubstr("eth0 (10.0.0.1"), HasSubstr("devices")));
  EXPECT_THAT(choose("192.0.2.1", {"eth0"}), ElementsAre("eth0 10.0.0.1"));
}

TEST(Rails, WildcardsAndNamesAreNotAdvertised) {
  EXPECT_THAT(refused("0.0.0.0"), HasSubstr("'0.0.0.0' can't be advertised"));
  EXPECT_THAT(refused("::"), HasSubstr("can't be advertised"));
  for (const char* address : {"", "host", "10.0.0.1:80", "[::1]", "1:2:3", "10.0.0.1%eth0"}) {
    EXPECT_THAT(refused(address), HasSubstr(std::string("'") + address + "'"));
  }
}

TEST(Rails, DevicesThatCanNotServeAreNamedWithTheReason) {
  EXPECT_THAT(refused("10.0.0.1", {"eth7"}), AllOf(HasSubstr("'eth7'"), HasSubstr("eth0")));
  EXPECT_THAT(refused("10.0.0.1", {"eth0", "off"}), AllOf(HasSubstr("'off'"), HasSubstr("down")));
  EXPECT_THAT(refused("10.0.0.1", {"bare"}), AllOf(HasSubstr("'bare'"), HasSubstr("no IP address")));
}

TEST(Rails, DeviceListsMayHoldBlanks) {
  EXPECT_THAT(parse_device_list("ib0, ib1 ,\tib2"), ElementsAre("ib0", "ib1", "ib2"));
  EXPECT_THAT(parse_device_list(""), IsEmpty());
  EXPECT_THAT(parse_device_list(" , ,"), IsEmpty());
}

TEST(Rails, TheInterfaceOfAnAddressIsFound) {
  const Machine machine = host();
  EXPECT_EQ(nic_with_address(machine, "10.0.1.1"), machine.nic("eth1"));
  EXPECT_EQ(nic_with_address(machine, "10.0.1.2"), nullptr);
  EXPECT_EQ(nic_with_address(machine, "nonsense"), nullptr);
}

}  // namespace
}  // namespace tidewire::topology
