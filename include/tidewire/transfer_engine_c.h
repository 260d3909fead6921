/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_engine_c.h: the C names that programs written for Mooncake's transfer engine call, served by Tidewire.
 * Names, argument order and results follow that interface: calls on memory return negative numbers on failure, submit, status and free calls
 * positive status codes. A NULL engine gives an error, not a crash. Link with libtidewire.so.
 */
#ifndef TIDEWIRE_TRANSFER_ENGINE_C_H
#define TIDEWIRE_TRANSFER_ENGINE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TW_TE_API __attribute__((visibility("default")))
#else
#define TW_TE_API
#endif

#define LOCAL_SEGMENT 0
#define INVALID_BATCH UINT64_MAX
#define OPCODE_READ 0
#define OPCODE_WRITE 1
#define STATUS_WAITING 0
#define STATUS_PENDING 1
#define STATUS_INVALID 2
#define STATUS_CANCELED 3
#define STATUS_COMPLETED 4
#define STATUS_TIMEOUT 5
#define STATUS_FAILED 6

typedef void* transfer_engine_t;
typedef void* transport_t;
typedef int32_t segment_id_t;
typedef uint64_t batch_id_t;

struct transfer_request {
  int opcode;             /* OPCODE_READ or OPCODE_WRITE */
  void* source;           /* local address */
  segment_id_t target_id; /* from openSegment, or LOCAL_SEGMENT */
  uint64_t target_offset; /* virtual address at the target */
  uint64_t length;        /* bytes */
};
typedef struct transfer_request transfer_request_t;

struct transfer_status {
  int status;
  uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

struct notify_msg {
  char* name;
  char* msg;
};
typedef struct notify_msg notify_msg_t;

struct buffer_entry {
  void* addr;
  size_t length;
};
typedef struct buffer_entry buffer_entry_t;

struct nic_load_stat {
  char device_name[64];
  uint64_t inflight_bytes;
  double ewma_bandwidth_bps;
};
typedef struct nic_load_stat nic_load_stat_t;

struct segment_desc {
  int type;
  union {
    struct {
      void* addr;
      uint64_t size;
      const char* location;
    } rdma;
    struct {
      const char* file_path;
      const char* subsystem_name;
      const char* proto;
      const char* ip;
      uint64_t port;
    } nvmeof;
  } desc_;
};
typedef struct segment_desc segment_desc_t;

/* NULL on error. metadata "P2PHANDSHAKE" or "http://…". The protocol is chosen by installTransport, or "auto" with the first use. */
TW_TE_API transfer_engine_t createTransferEngine(const char* metadata_conn_string, const char* local_server_name,
                                                 const char* ip_or_host_name, uint64_t rpc_port, int auto_discover);
TW_TE_API void destroyTransferEngine(transfer_engine_t engine);
/* 0 or -1; the text is cut to buf_len. */
TW_TE_API int getLocalIpAndPort(transfer_engine_t engine, char* buf_out, size_t buf_len);
TW_TE_API int discoverTopology(transfer_engine_t engine);
/* NULL when this machine can't do the protocol. */
TW_TE_API transport_t installTransport(transfer_engine_t engine, const char* proto, void** args);
TW_TE_API int uninstallTransport(transfer_engine_t engine, const char* proto);

/* -1 on error. */
TW_TE_API segment_id_t openSegment(transfer_engine_t engine, const char* segment_name);
TW_TE_API segment_id_t openSegmentNoCache(transfer_engine_t engine, const char* segment_name);
TW_TE_API int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
TW_TE_API int removeLocalSegment(transfer_engine_t engine, const char* segment_name);
TW_TE_API int syncSegmentCache(transfer_engine_t engine);
TW_TE_API int warmupEfaSegment(transfer_engine_t engine, const char* segment_name);

TW_TE_API int registerLocalMemory(transfer_engine_t engine, void* addr, size_t length, const char* location, int remote_accessible);
TW_TE_API int unregisterLocalMemory(transfer_engine_t engine, void* addr);
TW_TE_API int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t* buffer_list, size_t buffer_len, const char* location);
TW_TE_API int unregisterLocalMemoryBatch(transfer_engine_t engine, void** addr_list, size_t addr_len);

/* INVALID_BATCH on error. A batch holds up to batch_size requests, submitted in one or several calls. */
TW_TE_API batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
TW_TE_API int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request* entries, size_t count);
/* The notification goes to the first request's target, after the data of this call. */
TW_TE_API int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request* entries, size_t count,
                                       notify_msg_t notify_msg);
TW_TE_API int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id, struct transfer_status* status);
/* 4 (busy) while a request is not terminal. */
TW_TE_API int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* NULL when there are none; free with freeNotifsMsgBuf. */
TW_TE_API notify_msg_t* getNotifsFromEngine(transfer_engine_t engine, int* size);
TW_TE_API int freeNotifsMsgBuf(notify_msg_t* msg, int size);
TW_TE_API int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

/* in: capacity, out: total. */
TW_TE_API int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t* stats, size_t* count);
TW_TE_API void enableGracefulShutdown(transfer_engine_t engine);
TW_TE_API int showLinks(transfer_engine_t engine, char* buf_out, size_t buf_len, int json);

#ifdef __cplusplus
}
#endif
#endif
