// SPDX-License-Identifier: Apache-2.0
//
// HttpResponse: an HTTP/1.1 response from foreign bytes, piece by piece, without I/O. Bounded: 16 KiB of headers, a
// body of the given limit. Knows bodies by Content-Length, in chunks, and up to the end of the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tidewire::metadata {

class HttpResponse {
 public:
  explicit HttpResponse(size_t max_body) : max_body_(max_body) {}

  // kProtocol when the bytes are no response, or too many. Bytes after the response are ignored.
  Status feed(std::string_view bytes);
  // The connection ended.
  Status end();
  bool complete() const { return state_ == State::kComplete; }
  int code() const { return code_; }
  const std::string& body() const { return body_; }

 private:
  enum class State { kStatusLine, kHeader, kBody, kUntilEnd, kChunkSize, kChunk, kChunkEnd, kTrailer, kComplete };
  Status on_line(std::string_view line);
  Status on_status_line(std::string_view line);
  Status on_header(std::string_view line);
  Status on_headers_end();
  Status on_chunk_size(std::string_view line);
  Status take_body(std::string_view* bytes);
  Status fail(std::string_view why);

  const size_t max_body_;
  State state_ = State::kStatusLine;
  std::string line_;
  size_t header_bytes_ = 0;
  int code_ = 0;
  bool chunked_ = false;
  bool has_length_ = false;
  uint64_t left_ = 0;  // of the body or the chunk
  std::string body_;
};

}  // namespace tidewire::metadata
