// SPDX-License-Identifier: Apache-2.0
//
// What a node listens on, and the names by which it is reached.
#include <ifaddrs.h>
#include <net/if.h>

#include <set>

#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

Options named(const std::string& advertised, uint16_t port = 0) {
  Options options;
  options.advertised = advertised;
  options.port = port;
  return options;
}

// Whether this machine (or network namespace) has the address.
bool has(const std::string& literal) {
  const Result<Endpoint> at = literal_endpoint(literal, 0);
  UniqueFd fd(at.ok() ? socket(at->family(), SOCK_STREAM | SOCK_CLOEXEC, 0) : -1);
  return fd.valid() && bind(fd.get(), at->address(), at->size) == 0;
}

// A link-local address of this machine with its scope, or "".
std::string link_local() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET6 || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, address, sizeof(*address));
    endpoint.size = sizeof(*address);
    found = endpoint.ip();
  }
  freeifaddrs(list);
  return found;
}

TEST(NodeAddresses, WorkEndToEndInEveryForm) {
  std::vector<std::string> hosts = {"localhost"};
  if (has("127.0.0.1")) hosts.insert(hosts.end(), {"127.0.0.1", "127.0.0.1:0"});
  if (has("::1")) hosts.insert(hosts.end(), {"::1", "[::1]", "[::1]:0"});
  if (const std::string scoped = link_local(); !scoped.empty())
    hosts.insert(hosts.end(), {scoped, "[" + scoped + "]:0"});
  TestNode asker(named("localhost"));
  for (const std::string& host : hosts) {
    TestNode node(named(host));
    ASSERT_TRUE(node.status.ok()) << host << ": " << node.status.to_string();
    EXPECT_NE(node->port(), 0);
    EXPECT_EQ(parse_address(node.address())->port, node->port());
    const Status status = probe(asker, node.address());
    EXPECT_TRUE(status.ok()) << node.address() << ": " << status.to_string();
    EXPECT_TRUE(dial(asker, "", node->rail_addresses()[0], node.instance).status.ok()) << node->rail_addresses()[0];
  }
}

TEST(NodeAddresses, PortsInTheNameAndInTheOptionsAgree) {
  RawListener reserve;
  const uint16_t port = reserve.port;
  reserve.fd.reset();
  TestNode node(named("127.0.0.1:" + std::to_string(port)));
  ASSERT_TRUE(node.status.ok()) << node.status.to_string();
  EXPECT_EQ(node->port(), port);
  EXPECT_EQ(TestNode(named("127.0.0.1:1", 2)).status.code(), Code::kInvalidArgument);
}

TEST(NodeAddresses, BadOnesAndWildcardsAreRefusedByName) {
  for (const char* text :
       {"host:", ":4000", "host:99999", "1:2:3", "0.0.0.0", "::", "[::]:1", "256.1.1.1", "fe80::1%nosuchif0"}) {
    TestNode node(named(text));
    EXPECT_EQ(node.status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(node.status.message().find(std::string("bad address '") + text + "'"), std::string::npos)
        << node.status.message();
  }
  Options empty;
  Recorder recorder;
  const auto started = Node::start(empty, recorder);
  EXPECT_EQ(started.status().code(), Code::kInvalidArgument);
  EXPECT_NE(started.status().message().find("bad address ''"), std::string::npos) << started.status().message();
  TestNode asker;
  for (const char* text : {"", "host:", ":4000", "host:99999", "1:2:3", "127.0.0.1", "127.0.0.1:0", "::1"}) {
    const Status status = probe(asker, text);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(std::string("bad address '") + text + "'"), std::string::npos) << status.message();
  }
}

TEST(NodeAddresses, NamesThatDoNotResolveFail) {
  TestNode asker;
  const std::string label(63, 'a');
  for (const std::string& name :
       {std::string("no-such-host.invalid"), label + "." + label + "." + label + "." + std::string(61, 'b')}) {
    const Status status = probe(asker, name + ":4000", 10 * kSecond);
    EXPECT_TRUE(status.code() == Code::kUnreachable || status.code() == Code::kTimeout) << status.to_string();
  }
}

TEST(NodeAddresses, APortThatIsTakenIsNamed) {
  for (const bool reuse_port : {false, true}) {
    Endpoint at = *literal_endpoint("127.0.0.1", 0);
    UniqueFd holder(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (reuse_port) setsockopt(holder.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    ASSERT_EQ(bind(holder.get(), at.address(), at.size), 0);
    for (const bool listening : {false, true}) {
      if (listening) {
        ASSERT_EQ(listen(holder.get(), 1), 0);
      }
      const uint16_t port = local_endpoint(holder.get()).port();
      TestNode node(named("127.0.0.1", port));
      EXPECT_EQ(node.status.code(), Code::kAddressInUse) << node.status.to_string();
      EXPECT_NE(node.status.message().find(std::to_string(port)), std::string::npos) << node.status.message();
    }
  }
}

TEST(NodeAddresses, AFixedPortIsFreeAgainAfterStop) {
  uint16_t port = 0;
  {
    TestNode a, b;
    port = a->port();
    ASSERT_TRUE(probe(b, a.address()).ok());
  }
  TestNode again(named("127.0.0.1", port));
  EXPECT_TRUE(again.status.ok()) << again.status.to_string();
}

TEST(NodeAddresses, AutomaticPortsDiffer) {
  std::vector<std::unique_ptr<TestNode>> nodes(32);
  std::vector<std::thread> threads;
  for (auto& node : nodes) threads.emplace_back([&node] { node = std::make_unique<TestNode>(); });
  for (auto& thread : threads) thread.join();
  std::set<uint16_t> ports;
  for (auto& node : nodes) {
    ASSERT_TRUE(node->status.ok()) << node->status.to_string();
    ports.insert(node->node->port());
  }
  EXPECT_EQ(ports.size(), nodes.size());
}

TEST(NodeAddresses, AutomaticPortsStayInTheirRangeUntilItIsFull) {
  RawListener base;
  const uint16_t low = base.port;
  Options options = named("127.0.0.1");
  options.settings.port_min = low;
  options.settings.port_max = std::min(65'535, low + 3);
  std::vector<std::unique_ptr<TestNode>> nodes;
  Status last;
  for (int i = 0; i < 5; ++i) {
    nodes.push_back(std::make_unique<TestNode>(options));
    last = nodes.back()->status;
    if (!last.ok()) break;
    EXPECT_GT(nodes.back()->node->port(), low) << "the lowest is taken";
    EXPECT_LE(nodes.back()->node->port(), options.settings.port_max);
  }
  EXPECT_EQ(last.code(), Code::kAddressInUse);
  EXPECT_NE(last.message().find(std::to_string(low)), std::string::npos) << last.message();
}

TEST(NodeAddresses, AnAddressOfAnotherMachineListensOnAllOfItsFamily) {
  TestNode node(named("203.0.113.7")), asker;
  ASSERT_TRUE(node.status.ok()) << node.status.to_string();
  EXPECT_EQ(node.address(), "203.0.113.7:" + std::to_string(node->port()));
  EXPECT_EQ(node->rail_addresses()[0], node.address());
  EXPECT_TRUE(probe(asker, "127.0.0.1:" + std::to_string(node->port())).ok());
}

TEST(NodeAddresses, RailsListenOnTheSamePortOrTheirOwn) {
  RawListener holder;  // takes 127.0.0.1:port; the rail on 127.0.0.2 is free, so the port is shared
  Options options = named("127.0.0.3");
  options.rail_addresses = {"127.0.0.2", "127.0.0.3"};
  TestNode node(options);
  ASSERT_TRUE(node.status.ok()) << node.status.to_string();
  const std::string port = ":" + std::to_string(node->port());
  EXPECT_EQ(node->rail_addresses(),
            (std::vector<std::string>{"127.0.0.3" + port, "127.0.0.2" + port, "127.0.0.3" + port}));

  Options taken = named("127.0.0.4", holder.port);
  taken.rail_addresses = {"127.0.0.1"};
  TestNode other(taken);
  ASSERT_TRUE(other.status.ok()) << other.status.to_string();
  EXPECT_EQ(other->port(), holder.port);
  EXPECT_NE(other->rail_addresses()[1], "127.0.0.1:" + std::to_string(holder.port));

  Options foreign = named("127.0.0.1");
  foreign.rail_addresses = {"203.0.113.7"};
  EXPECT_EQ(TestNode(foreign).status.code(), Code::kUnreachable);
}

}  // namespace
}  // namespace tidewire::control::testing
