// SPDX-License-Identifier: Apache-2.0
#include "topology/sysfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/topology/fake_sysfs.h"

namespace tidewire::topology::sysfs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Sysfs, MissingThingsAreEmptyOrTheDefault) {
  EXPECT_EQ(read_text("/nonexistent/x"), "");
  EXPECT_EQ(read_integer("/nonexistent/x", -7), -7);
  EXPECT_THAT(list("/nonexistent"), IsEmpty());
  EXPECT_EQ(resolve("/nonexistent/x"), "");
  EXPECT_EQ(link_name("/nonexistent/x"), "");
}

TEST(Sysfs, TextIsTrimmedAndNumbersAreExact) {
  testing::FakeSysfs tree;
  tree.file("a", "100000 ");
  tree.file("b", "12x");
  EXPECT_EQ(read_text(tree.root() + "/a"), "100000");
  EXPECT_EQ(read_integer(tree.root() + "/a", 0), 100000);
  EXPECT_EQ(read_integer(tree.root() + "/b", -1), -1);
}

TEST(Sysfs, FoldersAreListedInNaturalOrder) {
  testing::FakeSysfs tree;
  for (const char* name : {"eth10", "eth2", "eth1"}) tree.folder(std::string("net/") + name);
  EXPECT_THAT(list(tree.root() + "/net"), ElementsAre("eth1", "eth2", "eth10"));
}

TEST(Sysfs, ThePciDeviceIsFoundAboveVirtioAndBehindBridges) {
  EXPECT_EQ(pci_folder("/sys/devices/pci0000:00/0000:00:03.0/virtio2"), "/sys/devices/pci0000:00/0000:00:03.0");
  EXPECT_EQ(pci_folder("/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.1"),
            "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.1");
  EXPECT_EQ(pci_folder("/sys/devices/pci10000:00/10000:00:01.0"), "/sys/devices/pci10000:00/10000:00:01.0");
  EXPECT_EQ(pci_folder("/sys/devices/virtual/net/lo"), "");
  EXPECT_EQ(pci_folder(""), "");
  EXPECT_EQ(pci_folder("0000:00:03.0"), "0000:00:03.0");
}

TEST(Sysfs, CpuListsAreCounted) {
  EXPECT_EQ(count_cpus("0-15,32-47"), 32);
  EXPECT_EQ(count_cpus("3"), 1);
  EXPECT_EQ(count_cpus(""), 0);
  EXPECT_EQ(count_cpus("0-"), 0);
  EXPECT_EQ(count_cpus("x"), 0);
}

}  // namespace
}  // namespace tidewire::topology::sysfs
