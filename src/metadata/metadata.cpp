// SPDX-License-Identifier: Apache-2.0
#include "metadata/metadata.h"

#include "control/address.h"
#include "metadata/http_metadata.h"

namespace tidewire::metadata {
namespace {

// "P2PHANDSHAKE": a peer's name is its address, so there is nothing to keep.
class PeerToPeer final : public Metadata {
 public:
  std::string_view name() const override { return "p2p"; }
  Status publish(const std::string&, const std::string&, const InstanceId&) override { return Status(); }
  Status withdraw(const std::string&, const InstanceId&) override { return Status(); }
  Result<std::string> resolve(const std::string& name) override {
    TW_ASSIGN_OR_RETURN(const control::HostPort address, control::parse_address(name));
    if (address.port == 0)
      return Status::error(Code::kInvalidArgument,
                           "bad address '{}': a peer's address needs a port (P2PHANDSHAKE: the name is the address)",
                           name);
    if (control::is_wildcard(address.host))
      return Status::error(Code::kInvalidArgument, "bad address '{}': a wildcard is no peer's address", name);
    return name;
  }
};

}  // namespace

Result<std::unique_ptr<Metadata>> Metadata::connect(const std::string& uri, Nanos timeout) {
  if (uri.empty() || uri == "P2PHANDSHAKE") return std::unique_ptr<Metadata>(std::make_unique<PeerToPeer>());
  if (uri.compare(0, 7, "http://") == 0) return HttpMetadata::connect(uri, timeout);
  return Status::error(Code::kInvalidArgument,
                       "metadata '{}' is unknown: P2PHANDSHAKE or http://host:port/path are possible",
                       uri.substr(0, 300));
}

}  // namespace tidewire::metadata
