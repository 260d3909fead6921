// SPDX-License-Identifier: Apache-2.0
#include "store/types.h"

namespace tidewire::store {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kInternal:
      return "INTERNAL_ERROR";
    case Code::kBufferOverflow:
      return "BUFFER_OVERFLOW";
    case Code::kSegmentNotFound:
      return "SEGMENT_NOT_FOUND";
    case Code::kSegmentExists:
      return "SEGMENT_ALREADY_EXISTS";
    case Code::kClientNotFound:
      return "CLIENT_NOT_FOUND";
    case Code::kNoSpace:
      return "NO_AVAILABLE_HANDLE";
    case Code::kInvalidVersion:
      return "INVALID_VERSION";
    case Code::kInvalidKey:
      return "INVALID_KEY";
    case Code::kWriteFailed:
      return "WRITE_FAIL";
    case Code::kInvalidParams:
      return "INVALID_PARAMS";
    case Code::kIllegalClient:
      return "ILLEGAL_CLIENT";
    case Code::kInvalidWrite:
      return "INVALID_WRITE";
    case Code::kInvalidRead:
      return "INVALID_READ";
    case Code::kReplicaNotReady:
      return "REPLICA_IS_NOT_READY";
    case Code::kNotFound:
      return "OBJECT_NOT_FOUND";
    case Code::kExists:
      return "OBJECT_ALREADY_EXISTS";
    case Code::kHasLease:
      return "OBJECT_HAS_LEASE";
    case Code::kLeaseExpired:
      return "LEASE_EXPIRED";
    case Code::kReplicaNotFound:
      return "REPLICA_NOT_FOUND";
    case Code::kReplicaGone:
      return "REPLICA_IS_GONE";
    case Code::kTransferFailed:
      return "TRANSFER_FAIL";
    case Code::kChecksumMismatch:
      return "CHECKSUM_MISMATCH";
    case Code::kRpcFailed:
      return "RPC_FAIL";
    case Code::kRpcTimeout:
      return "RPC_TIMEOUT";
    case Code::kUnavailable:
      return "UNAVAILABLE_IN_CURRENT_STATUS";
    case Code::kUnavailableInMode:
      return "UNAVAILABLE_IN_CURRENT_MODE";
    case Code::kNotSupported:
      return "NOT_SUPPORTED";
  }
  return "UNKNOWN";
}

}  // namespace tidewire::store
