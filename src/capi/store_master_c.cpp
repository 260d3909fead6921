// SPDX-License-Identifier: Apache-2.0
//
// store.h: the master.
#include <tidewire/store.h>

#include "base/log_detail.h"
#include "base/settings.h"
#include "capi/handles.h"
#include "capi/master_entry.h"
#include "control/address.h"

using namespace tidewire;
using namespace tidewire::capi;

namespace {

Status find_master(tw_master_t handle, std::shared_ptr<MasterEntry>* out) {
  return lookup(tables().masters, handle, "master", out);
}

Status need(const void* pointer, const char* name) {
  if (!pointer) return Status::error(Code::kInvalidArgument, "{} is NULL", name);
  return {};
}

std::string text_or(const char* text, const char* fallback) {
  return text ? text : fallback;
}

// 0 keeps the default.
Status take_duration(uint64_t nanoseconds, const char* name, Nanos* out) {
  constexpr Nanos kShortest = 10 * kMillisecond, kLongest = 365 * 86'400 * kSecond;
  if (nanoseconds == 0) return {};
  if (nanoseconds < static_cast<uint64_t>(kShortest) || nanoseconds > static_cast<uint64_t>(kLongest))
    return Status::error(Code::kInvalidArgument, "{} is {} ns: between 10 ms and a year is possible", name,
                         nanoseconds);
  *out = static_cast<Nanos>(nanoseconds);
  return {};
}

Status take_ratio(double value, const char* name, double* out) {
  if (value == 0) return {};
  if (!(value > 0 && value <= 1))
    return Status::error(Code::kInvalidArgument, "{} is {}: above 0 and at most 1 is possible", name, value);
  *out = value;
  return {};
}

Result<store::MasterOptions> master_options(const tw_master_options& options) {
  store::MasterOptions master;
  TW_RETURN_IF_ERROR(take_duration(options.lease_ns, "lease_ns", &master.lease));
  TW_RETURN_IF_ERROR(take_duration(options.client_ttl_ns, "client_ttl_ns", &master.client_ttl));
  TW_RETURN_IF_ERROR(take_duration(options.soft_pin_ttl_ns, "soft_pin_ttl_ns", &master.soft_pin_ttl));
  TW_RETURN_IF_ERROR(take_duration(options.max_soft_pin_ttl_ns, "max_soft_pin_ttl_ns", &master.max_soft_pin_ttl));
  TW_RETURN_IF_ERROR(take_duration(options.put_wait_ns, "put_wait_ns", &master.put_wait));
  TW_RETURN_IF_ERROR(take_duration(options.write_lease_ns, "write_lease_ns", &master.write_lease));
  TW_RETURN_IF_ERROR(take_ratio(options.high_watermark, "high_watermark", &master.high_watermark));
  TW_RETURN_IF_ERROR(take_ratio(options.eviction_ratio, "eviction_ratio", &master.eviction_ratio));
  master.evict_soft_pinned = options.keep_soft_pinned == 0;
  return master;
}

}  // namespace

extern "C" {

tw_code tw_master_create(const tw_master_options* options, tw_master_t* out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(out, "out"));
    tw_master_options wanted{};
    if (options && options->struct_size != sizeof(tw_master_options))
      return Status::error(Code::kInvalidArgument,
                           "tw_master_options.struct_size is {}, this library has {}: set it to sizeof",
                           options->struct_size, sizeof(tw_master_options));
    if (options) wanted = *options;
    std::vector<std::string> texts;
    for (const char* const* one = wanted.settings; one && *one; ++one) texts.push_back(*one);
    TW_ASSIGN_OR_RETURN(const Settings settings, Settings::load(texts));
    if (const auto level = log::parse_level(settings.log_level)) log::set_level(*level);

    store::MasterHostOptions host;
    host.host = text_or(wanted.host, "127.0.0.1");
    host.port = wanted.port;
    host.advertised = text_or(wanted.advertised, "");
    host.journal = text_or(wanted.journal, "");
    TW_ASSIGN_OR_RETURN(host.secret, load_secret(settings.secret_file));
    TW_ASSIGN_OR_RETURN(host.master, master_options(wanted));
    auto entry = std::make_shared<MasterEntry>();
    TW_ASSIGN_OR_RETURN(entry->host, store::MasterHost::start(host));
    if (wanted.admin_host) {
      entry->admin = std::make_unique<store::AdminHttp>(*entry->host, host.secret, wanted.admin_open != 0);
      TW_RETURN_IF_ERROR(entry->admin->start(control::HostPort{wanted.admin_host, wanted.admin_port, true}.to_string())
                             .with_context("the master's pages"));
    }
    *out = tables().masters.insert(std::move(entry));
    return {};
  });
}

tw_code tw_master_destroy(tw_master_t handle) {
  return guarded([&]() -> Status {
    std::shared_ptr<MasterEntry> entry;
    TW_RETURN_IF_ERROR(find_master(handle, &entry));
    if (!tables().masters.remove(handle))
      return Status::error(Code::kNotFound, "master handle {:#x} was destroyed by another thread", handle);
    if (entry->admin) entry->admin->stop();
    entry->host->stop();
    return {};
  });
}

tw_code tw_master_address(tw_master_t handle, char* out, size_t size) {
  return guarded([&]() -> Status {
    std::shared_ptr<MasterEntry> entry;
    TW_RETURN_IF_ERROR(find_master(handle, &entry));
    return copy_text(entry->host->address(), out, size, nullptr);
  });
}

tw_code tw_master_admin_address(tw_master_t handle, char* out, size_t size) {
  return guarded([&]() -> Status {
    std::shared_ptr<MasterEntry> entry;
    TW_RETURN_IF_ERROR(find_master(handle, &entry));
    return copy_text(entry->admin ? entry->admin->address() : std::string(), out, size, nullptr);
  });
}

tw_code tw_master_status_json(tw_master_t handle, char* out, size_t size, size_t* needed) {
  return guarded([&]() -> Status {
    std::shared_ptr<MasterEntry> entry;
    TW_RETURN_IF_ERROR(find_master(handle, &entry));
    TW_ASSIGN_OR_RETURN(const std::string text, entry->host->status_json());
    return copy_text(text, out, size, needed);
  });
}

}  // extern "C"
