// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cerrno>
#include <cstring>

namespace tidewire {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk: return "OK";
    case Code::kInvalidArgument: return "INVALID_ARGUMENT";
    case Code::kNotFound: return "NOT_FOUND";
    case Code::kBusy: return "BUSY";
    case Code::kNotRegistered: return "NOT_REGISTERED";
    case Code::kOverlap: return "OVERLAP";
    case Code::kPermissionDenied: return "PERMISSION_DENIED";
    case Code::kUnreachable: return "UNREACHABLE";
    case Code::kPeerGone: return "PEER_GONE";
    case Code::kTimeout: return "TIMEOUT";
    case Code::kCanceled: return "CANCELED";
    case Code::kPartial: return "PARTIAL";
    case Code::kNoMemory: return "NO_MEMORY";
    case Code::kNoResources: return "NO_RESOURCES";
    case Code::kAddressInUse: return "ADDRESS_IN_USE";
    case Code::kUnsupported: return "UNSUPPORTED";
    case Code::kUnauthenticated: return "UNAUTHENTICATED";
    case Code::kProtocol: return "PROTOCOL";
    case Code::kForked: return "FORKED";
    case Code::kClosed: return "CLOSED";
    case Code::kInternal: return "INTERNAL";
  }
  return "UNKNOWN";
}

namespace {
Code code_of_errno(int error) {
  switch (error) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN: return Code::kUnreachable;
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case ESRCH: return Code::kPeerGone;
    case ENOMEM: return Code::kNoMemory;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case EADDRNOTAVAIL:
    case ENOSPC:
    case EAGAIN: return Code::kNoResources;
    case EADDRINUSE: return Code::kAddressInUse;
    case EPERM:
    case EACCES: return Code::kPermissionDenied;
    case ETIMEDOUT: return Code::kTimeout;
    default: return Code::kInternal;
  }
}
}  // namespace

Status errno_status(int error, const std::string& what) {
  char buffer[128];
  return Status(code_of_errno(error), what + ": " + strerror_r(error, buffer, sizeof buffer), error);
}

}  // namespace tidewire
