// SPDX-License-Identifier: Apache-2.0
//
// A sysfs tree in a temporary folder, removed at the end.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tidewire::topology::testing {

class FakeSysfs {
 public:
  FakeSysfs() {
    std::string pattern = ::testing::TempDir() + "tidewire-sysfs-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;
  ~FakeSysfs() { std::filesystem::remove_all(root_); }

  const std::string& root() const { return root_; }
  void file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << content << "\n";
  }
  void folder(const std::string& path) { std::filesystem::create_directories(root_ + "/" + path); }
  // A link from `path` to `target`, both inside the tree; the target is made.
  void link(const std::string& path, const std::string& target) {
    folder(target);
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::filesystem::create_directory_symlink(root_ + "/" + target, root_ + "/" + path);
  }
  void nic(const std::string& name, int type, int index, const std::string& uevent = "") {
    const std::string folder = "class/net/" + name;
    file(folder + "/type", std::to_string(type));
    file(folder + "/ifindex", std::to_string(index));
    file(folder + "/iflink", std::to_string(index));
    file(folder + "/flags", "0x1003");
    file(folder + "/mtu", "1500");
    file(folder + "/uevent", uevent);
  }

 private:
  std::string root_;
};

}  // namespace tidewire::topology::testing
