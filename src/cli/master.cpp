// SPDX-License-Identifier: Apache-2.0
//
// `tidewire master`: a store's master as a process, with the flags of mooncake_master.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <poll.h>
#include <signal.h>
#include <tidewire/store.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/master_flags.h"
#include "control/address.h"
#include "store/admin/metadata_http.h"

namespace tidewire::cli {
namespace {

constexpr uint16_t kDefaultPort = 50051;

// The master is destroyed however the command ends.
struct Master {
  tw_master_t handle = 0;
  ~Master() {
    if (handle) static_cast<void>(tw_master_destroy(handle));
  }
};

// The first IPv4 address of an interface, or else its first IPv6 one.
std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail("the network interfaces can't be listed");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* each = list; each; each = each->ifa_next) {
      if (!each->ifa_addr || each->ifa_addr->sa_family != family || name != each->ifa_name) continue;
      char text[INET6_ADDRSTRLEN] = "";
      const void* const address =
          family == AF_INET ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr)
                            : &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
      if (::inet_ntop(family, address, text, sizeof text)) return text;
    }
  fail(fmt::format("flag --rpc_interface={}: no interface of this name has an address", name), 2);
}

uint16_t rpc_port(const MasterFlags& flags) {
  if (flags.text("rpc_port") == "auto") return 0;
  if (const uint16_t port = flags.port("rpc_port"); port != 0) return port;
  if (flags.text("port") == "auto") return 0;
  const uint16_t port = flags.port("port");
  return port != 0 ? port : kDefaultPort;
}

// Never waits for a reader: whoever started this may not read at all.
void say(const std::string& line) {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0)
    static_cast<void>(!::write(STDOUT_FILENO, line.data(), line.size()));
}

std::string text_of(tw_code (*get)(tw_master_t, char*, size_t), tw_master_t master) {
  char text[512] = "";
  if (get(master, text, sizeof text) != TW_OK) fail(tw_last_error());
  return text;
}

void run(const MasterFlags& flags) {
  // Blocked before any thread starts: the signals wait for sigwait below.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  const std::string host = flags.text("rpc_interface").empty() ? flags.text("rpc_address")
                                                               : address_of_interface(flags.text("rpc_interface"));
  const std::vector<std::string> chosen = flags.settings();
  std::vector<const char*> settings;
  for (const std::string& setting : chosen) settings.push_back(setting.c_str());
  settings.push_back(nullptr);

  tw_master_options options{};
  options.struct_size = sizeof options;
  options.host = host.c_str();
  options.port = rpc_port(flags);
  if (!flags.text("advertised").empty()) options.advertised = flags.text("advertised").c_str();
  options.admin_host = flags.text("metrics_host").c_str();
  options.admin_port = flags.port("metrics_port");
  options.admin_open = 1;
  if (!flags.text("journal").empty()) options.journal = flags.text("journal").c_str();
  options.lease_ns = static_cast<uint64_t>(flags.duration("default_kv_lease_ttl"));
  options.client_ttl_ns = static_cast<uint64_t>(flags.duration("client_ttl"));
  options.soft_pin_ttl_ns = static_cast<uint64_t>(flags.duration("default_kv_soft_pin_ttl"));
  options.max_soft_pin_ttl_ns = static_cast<uint64_t>(flags.duration("max_kv_soft_pin_ttl"));
  options.keep_soft_pinned = flags.flag("allow_evict_soft_pinned_objects") ? 0 : 1;
  options.high_watermark = flags.number("eviction_high_watermark_ratio");
  options.eviction_ratio = flags.number("eviction_ratio");
  options.settings = settings.data();

  Master master;
  if (tw_master_create(&options, &master.handle) != TW_OK) fail(tw_last_error());
  store::MetadataHttp metadata;
  if (flags.flag("enable_http_metadata_server")) {
    const std::string address =
        control::HostPort{flags.text("http_metadata_server_host"), flags.port("http_metadata_server_port"), true}
            .to_string();
    if (const Status status = metadata.start(address); !status.ok()) fail("the metadata server: " + status.message());
    if (const std::string& on = metadata.address();
        !on.starts_with("127.") && !on.starts_with("[::1]") && !on.starts_with("localhost:"))
      log::warn("metadata_open",
                "whoever reaches {} can read and change where engines are found; --http_metadata_server_host=127.0.0.1 "
                "closes it",
                on);
  }
  const std::string admin = text_of(tw_master_admin_address, master.handle);
  say(fmt::format("tidewire master listens on {}, admin on {}{}\n", text_of(tw_master_address, master.handle), admin,
                  metadata.address().empty() ? "" : ", metadata on " + metadata.address()));

  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
  // A second signal ends the program at once, should the end take too long.
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
}

}  // namespace

void add_master(CLI::App& app) {
  CLI::App* command = app.add_subcommand("master", "The master of a store: where objects are, and who may write where");
  // The flags are not of this parser's syntax.
  command->set_help_flag();
  command->prefix_command();
  command->callback([command] {
    const Result<MasterFlags> flags = MasterFlags::parse(command->remaining());
    if (!flags.ok()) fail(flags.status().message(), 2);
    if (flags->help())
      fmt::print("{}", MasterFlags::help_text());
    else
      run(*flags);
  });
}

}  // namespace tidewire::cli
