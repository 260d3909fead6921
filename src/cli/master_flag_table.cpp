// SPDX-License-Identifier: Apache-2.0
#include "cli/master_flag_table.h"

namespace tidewire::cli {
namespace {

constexpr auto kText = FlagKind::kText;
constexpr auto kBool = FlagKind::kBool;
constexpr auto kInteger = FlagKind::kInteger;
constexpr auto kNumber = FlagKind::kNumber;
constexpr auto kPort = FlagKind::kPort;
constexpr auto kMilliseconds = FlagKind::kMilliseconds;
constexpr auto kSeconds = FlagKind::kSeconds;
constexpr auto kWorks = FlagUse::kWorks;
constexpr auto kIgnored = FlagUse::kIgnored;
constexpr auto kMissing = FlagUse::kMissing;

std::vector<FlagRow> make_table() {
  std::vector<FlagRow> rows = {
      // Where it listens.
      {"rpc_port", kPort, "0", kWorks, "", "Port of the master; 0 = 50051, auto = a free one"},
      {"port", kPort, "50051", kWorks, "", "The same, older name; rpc_port goes first"},
      {"rpc_address", kText, "0.0.0.0", kWorks, "", "Address to listen on"},
      {"rpc_interface", kText, "", kWorks, "", "Network interface to listen on, instead of rpc_address"},
      {"metrics_port", kPort, "9003", kWorks, "", "Port of the HTTP pages; auto = a free one"},
      {"metrics_host", kText, "0.0.0.0", kWorks, "", "Address of the HTTP pages"},
      {"config_path", kText, "", kWorks, "", "File with flags: a JSON object, or lines \"name: value\""},
      {"enable_http_metadata_server", kBool, "false", kWorks, "", "Serve a directory of engines at /metadata too"},
      {"http_metadata_server_port", kPort, "8080", kWorks, "", "Its port; auto = a free one"},
      {"http_metadata_server_host", kText, "0.0.0.0", kWorks, "", "Its address"},
      {"enable_metadata_cleanup_on_timeout", kBool, "false", kMissing},
      {"advertised", kText, "", kWorks, "", "Own flag: host:port as clients know the master, for their errors"},
      {"journal", kText, "", kWorks, "",
       "Own flag: folder of the journal; without one a restarted master learns everything from the owners"},
      // How long things last.
      {"default_kv_lease_ttl", kMilliseconds, "10000", kWorks, "", "Lease of a reader (ms, or with s, m, h)"},
      {"default_kv_soft_pin_ttl", kMilliseconds, "1800000", kWorks, "", "Time of a soft pin that names none"},
      {"max_kv_soft_pin_ttl", kMilliseconds, "86400000", kWorks, "", "Longest time of a soft pin"},
      {"allow_evict_soft_pinned_objects", kBool, "true", kWorks, "",
       "Evict soft-pinned objects when nothing else is left"},
      {"client_ttl", kSeconds, "10", kWorks, "", "Silence after which a client is given up (s)"},
      {"put_start_discard_timeout_sec", kSeconds, "30", kMissing},
      {"put_start_release_timeout_sec", kSeconds, "600", kMissing},
      {"eviction_ratio", kNumber, "0.05", kWorks, "",
       "How far below the watermark an eviction goes, part of a segment"},
      {"eviction_high_watermark_ratio", kNumber, "0.9", kWorks, "", "Use of a segment at which eviction starts"},
      {"nof_eviction_ratio", kNumber, "0.05", kMissing},
      {"nof_eviction_high_watermark_ratio", kNumber, "0.9", kMissing},
      {"nof_heartbeat_interval_sec", kSeconds, "10", kMissing},
      {"nof_heartbeat_probe_timeout_ms", kMilliseconds, "1000", kMissing},
      {"nof_heartbeat_failures_threshold", kInteger, "3", kMissing},
      // The server's own affairs.
      {"max_threads", kInteger, "16", kIgnored},
      {"rpc_thread_num", kInteger, "0", kIgnored},
      {"enable_metric_reporting", kBool, "true", kIgnored},
      {"rpc_conn_timeout_seconds", kSeconds, "0", kMissing},
      {"rpc_enable_tcp_no_delay", kBool, "true", kMissing},
      {"memory_allocator", kText, "offset", kMissing},
      {"allocation_strategy", kText, "random", kMissing},
      {"enable_cxl", kBool, "false", kMissing},
      {"cxl_path", kText, "/dev/dax0.0", kMissing, "enable_cxl"},
      {"cxl_size", kInteger, "8589934592", kMissing, "enable_cxl"},
      // Tiers below memory.
      {"enable_offload", kBool, "false", kMissing},
      {"offload_on_evict", kBool, "false", kMissing, "enable_offload"},
      {"offload_force_evict", kBool, "false", kMissing, "enable_offload"},
      {"offloading_queue_limit", kInteger, "50000", kMissing, "enable_offload"},
      {"offload_cap_ratio", kNumber, "0.5", kMissing, "enable_offload"},
      {"promotion_on_hit", kBool, "false", kMissing, "enable_offload"},
      {"promotion_admission_threshold", kInteger, "2", kMissing, "enable_offload"},
      {"promotion_queue_limit", kInteger, "50000", kMissing, "enable_offload"},
      {"promotion_max_per_heartbeat", kInteger, "1", kMissing, "enable_offload"},
      {"root_fs_dir", kText, "", kMissing},
      {"enable_disk_eviction", kBool, "true", kMissing, "root_fs_dir"},
      {"quota_bytes", kInteger, "0", kMissing, "root_fs_dir"},
      {"global_file_segment_size", kInteger, "9223372036854775807", kMissing, "root_fs_dir"},
      {"dynamic_replication_mode", kText, "off", kMissing},
      {"dynamic_replication_heat_window_seconds", kSeconds, "10", kMissing, "dynamic_replication_mode"},
      {"dynamic_replication_admission_qps_threshold", kNumber, "0.8", kMissing, "dynamic_replication_mode"},
      {"dynamic_replication_max_memory_replicas", kInteger, "2", kMissing, "dynamic_replication_mode"},
      {"enable_kv_events", kBool, "false", kMissing},
      // Several masters, snapshots, tenants, tasks.
      {"enable_ha", kBool, "false", kMissing},
      {"enable_oplog", kBool, "false", kMissing},
      {"oplog_poll_interval_ms", kInteger, "1000", kMissing, "enable_oplog"},
      {"oplog_batch_max_entries", kInteger, "1024", kMissing, "enable_oplog"},
      {"batch_oplog_retry_timeout_sec", kInteger, "180", kMissing, "enable_oplog"},
      {"enable_multi_tenants", kBool, "false", kMissing},
      {"tenant_quota_connector_type", kText, "file", kMissing, "enable_multi_tenants"},
      {"tenant_quota_connector_uri", kText, "", kMissing, "enable_multi_tenants"},
      {"enable_snapshot", kBool, "false", kMissing},
      {"enable_snapshot_restore", kBool, "false", kMissing},
      {"snapshot_interval_seconds", kInteger, "600", kMissing, "enable_snapshot"},
      {"snapshot_child_timeout_seconds", kInteger, "300", kMissing, "enable_snapshot"},
      {"snapshot_retention_count", kInteger, "2", kMissing, "enable_snapshot"},
      {"max_total_finished_tasks", kInteger, "10000", kMissing},
      {"max_total_pending_tasks", kInteger, "10000", kMissing},
      {"max_total_processing_tasks", kInteger, "10000", kMissing},
      {"pending_task_timeout_sec", kSeconds, "300", kMissing},
      {"processing_task_timeout_sec", kSeconds, "300", kMissing},
      {"max_retry_attempts", kInteger, "10", kMissing},
  };
  for (const char* name :
       {"ha_backend_type", "ha_backend_connstring", "etcd_endpoints", "cluster_id", "pod_name", "pod_namespace"})
    rows.push_back({name, kText, "", kMissing, "enable_ha"});
  for (const char* name : {"kv_events_bind_endpoint", "kv_events_model_name", "kv_events_backend_id",
                           "kv_events_tenant_id", "kv_events_additional_salt", "kv_events_lora_name",
                           "kv_events_block_size", "kv_events_dp_rank", "kv_events_queue_capacity"})
    rows.push_back({name, kText, "", kMissing, "enable_kv_events"});
  for (const char* name : {"kv_events_emit_legacy_compat", "kv_events_emit_object_key"})
    rows.push_back({name, kBool, "true", kMissing, "enable_kv_events"});
  for (const char* name : {"snapshot_backup_dir", "snapshot_object_store_type", "snapshot_payload_store_type",
                           "snapshot_backend_type", "snapshot_catalog_store_type", "snapshot_catalog_store_connstring"})
    rows.push_back({name, kText, "", kMissing, "enable_snapshot"});
  // Of its logging library; ours writes warnings to stderr (TIDEWIRE_LOG).
  for (const char* name : {"logtostderr", "alsologtostderr", "colorlogtostderr", "log_prefix",
                           "stop_logging_if_full_disk", "logtostdout", "log_utc_time", "timestamp_in_logfile_name"})
    rows.push_back({name, kBool, "false", kIgnored});
  for (const char* name : {"log_dir", "log_link", "vmodule", "log_backtrace_at", "logbuflevel", "logbufsecs",
                           "max_log_size", "minloglevel", "stderrthreshold", "v", "logfile_mode", "logcleansecs",
                           "logemaillevel", "logmailer", "alsologtoemail"})
    rows.push_back({name, kText, "", kIgnored});
  return rows;
}

}  // namespace

const std::vector<FlagRow>& master_flag_table() {
  static const std::vector<FlagRow> table = make_table();
  return table;
}

const FlagRow* find_master_flag(const std::string& name) {
  for (const FlagRow& row : master_flag_table())
    if (name == row.name) return &row;
  return nullptr;
}

}  // namespace tidewire::cli
