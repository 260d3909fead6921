// SPDX-License-Identifier: Apache-2.0
//
// Asio as the control plane uses it. The one way in: its configuration asks libstdc++'s for aligned_alloc, so a
// standard header must come first. A file that got Asio first would free with delete what others took from malloc.
#pragma once

#include <cstddef>

#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#if !defined(ASIO_HAS_STD_ALIGNED_ALLOC)
#error "Asio was included before any standard header; include control/asio.h"
#endif
