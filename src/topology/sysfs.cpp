// SPDX-License-Identifier: Apache-2.0
#include "topology/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "base/unique_fd.h"

namespace tidewire::topology::sysfs {
namespace {

bool is_hex(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
}

// "0000:00:03.0"; the domain may have more than four digits.
bool is_pci_address(const std::string& name) {
  const size_t size = name.size();
  if (size < 12 || name[size - 8] != ':' || name[size - 5] != ':' || name[size - 2] != '.') return false;
  for (size_t index = 0; index < size; ++index) {
    if (index != size - 8 && index != size - 5 && index != size - 2 && !is_hex(name[index])) return false;
  }
  return true;
}

}  // namespace

std::string read_text(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return "";
  std::string text(4096, '\0');
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\0')) text.pop_back();
  return text;
}

int64_t read_integer(const std::string& path, int64_t otherwise) {
  const std::string text = read_text(path);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

std::vector<std::string> list(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (!folder) return names;
  while (const dirent* entry = ::readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe): a DIR of our own
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; });
  return names;
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::string resolve(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), ::free);
  return resolved ? resolved.get() : "";
}

std::string link_name(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  if (length <= 0) return "";
  const std::string text(target, static_cast<size_t>(length));
  return text.substr(text.rfind('/') + 1);
}

std::string pci_folder(const std::string& resolved) {
  for (std::string path = resolved; !path.empty(); path.resize(path.rfind('/'))) {
    if (is_pci_address(path.substr(path.rfind('/') + 1))) return path;
    if (path.find('/') == std::string::npos) break;
  }
  return "";
}

int count_cpus(const std::string& cpus) {
  int count = 0;
  const char* at = cpus.data();
  const char* const end = at + cpus.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) return count;
    int last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc()) return count;
    }
    if (last >= first) count += last - first + 1;
    at = parsed.ptr < end ? parsed.ptr + 1 : end;
  }
  return count;
}

}  // namespace tidewire::topology::sysfs
