/* SPDX-License-Identifier: Apache-2.0
 *
 * tidewire.h: the C interface of the Tidewire transfer engine, and the one boundary through which
 * every other language enters.
 *
 * An engine registers ranges of local memory ("regions"), knows other engines ("peers") by
 * "host:port" or by a name in a metadata service, and moves bytes between local regions and the
 * regions of peers in batches of transfers. A transfer is COMPLETED when its bytes are in the target's
 * memory and the target's processor or device can read them.
 *
 * Conventions
 *  - Sizes are bytes, times are nanoseconds, both 64-bit.
 *  - Every function that can fail returns a tw_code; 0 is success. tw_last_error() gives the text of
 *    the calling thread's last failure: it names the thing, its value and the remedy.
 *  - Handles are generational 64-bit numbers; 0 is never valid. A stale or forged handle gives
 *    TW_NOT_FOUND, never a crash.
 *  - All functions may be called from any thread. None installs signal handlers. After fork() the
 *    child's calls on engines of the parent give TW_FORKED; the child may create engines of its own.
 *  - No function keeps a pointer argument after it returns, except registered memory and the local
 *    ranges of transfers, which must stay valid until the batch is terminal.
 */
#ifndef TIDEWIRE_H
#define TIDEWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

#define TW_VERSION_STRING "0.1.0"

typedef uint64_t tw_engine_t;
typedef uint64_t tw_peer_t;
typedef uint64_t tw_batch_t;

typedef enum tw_code {
  TW_OK = 0,
  TW_INVALID_ARGUMENT = 1, /* a value is out of range or malformed; nothing was done */
  TW_NOT_FOUND = 2,        /* unknown or stale handle, unknown peer name */
  TW_BUSY = 3,             /* work in flight forbids the call */
  TW_NOT_REGISTERED = 4,   /* a range is not covered by registered regions (local or remote) */
  TW_OVERLAP = 5,          /* a registration overlaps another without being identical */
  TW_PERMISSION_DENIED = 6,/* the region's remote permission forbids the operation */
  TW_UNREACHABLE = 7,      /* no path to the peer: refused, no route, black hole, in back-off */
  TW_PEER_GONE = 8,        /* the peer closed, died or restarted while the work was under way */
  TW_TIMEOUT = 9,          /* the deadline passed */
  TW_CANCELED = 10,
  TW_PARTIAL = 11,         /* a batch in which some transfers completed and some did not */
  TW_NO_MEMORY = 12,
  TW_NO_RESOURCES = 13,    /* descriptors, ports, shared memory or device limits are used up */
  TW_ADDRESS_IN_USE = 14,
  TW_UNSUPPORTED = 15,     /* this machine, build or peer can't do it; the text says what is missing */
  TW_UNAUTHENTICATED = 16, /* cluster secrets differ */
  TW_PROTOCOL = 17,        /* the other side speaks another protocol or sent malformed bytes */
  TW_FORKED = 18,          /* the engine belongs to the parent process */
  TW_CLOSED = 19,          /* the engine is shutting down or closed */
  TW_INTERNAL = 20         /* a defect of Tidewire: please report */
} tw_code;

/* A short constant name for a code, e.g. "TIMEOUT". Never NULL. */
TW_API const char* tw_code_name(tw_code code);
/* Text of the calling thread's last failed call. Valid until that thread's next call. Never NULL. */
TW_API const char* tw_last_error(void);
/* The library's version, e.g. "0.1.0". */
TW_API const char* tw_version(void);

/* ---- engine ------------------------------------------------------------------------------------ */

typedef struct tw_engine_options {
  size_t struct_size;        /* sizeof(tw_engine_options): lets the struct grow */
  const char* local_name;    /* advertised "host", "host:port" or "[v6]:port"; port absent or 0 = automatic.
                                NULL = "127.0.0.1" */
  const char* metadata;      /* NULL or "P2PHANDSHAKE": peers are addresses; "http://host:port[/path]": names */
  const char* protocol;      /* NULL or "auto": same host then TCP; "tcp": TCP only between hosts, same-host path
                                where proven; "shm": same host only; "rdma", "efa", "fabric:<provider>" */
  const char* devices;       /* comma list of interface names (blanks allowed); NULL or "" = the advertised
                                address's interface */
  const char* const* settings; /* NULL or NULL-terminated list of "name=value"; names as `tidewire doctor
                                  --settings` prints them; these win over the environment */
} tw_engine_options;

/* Creates and starts an engine. *out is set only on success. Blocks for at most a few seconds. */
TW_API tw_code tw_engine_create(const tw_engine_options* options, tw_engine_t* out);
/* Cancels or finishes what is in flight (bounded, about 1 s), tells peers, frees everything. Batches of the
 * engine become stale. */
TW_API tw_code tw_engine_destroy(tw_engine_t engine);
/* Writes "host:port" ("[v6]:port"), the address that peers use, with a NUL. TW_INVALID_ARGUMENT if it does not fit. */
TW_API tw_code tw_engine_address(tw_engine_t engine, char* out, size_t out_size);
/* The listening port. */
TW_API tw_code tw_engine_port(tw_engine_t engine, uint16_t* out);
/* Everything that `tidewire status` shows, as JSON. Same sizing rule as tw_engine_address; *needed (may be NULL)
 * receives the size including the NUL. */
TW_API tw_code tw_engine_status_json(tw_engine_t engine, char* out, size_t out_size, size_t* needed);

/* ---- memory ------------------------------------------------------------------------------------ */

typedef enum tw_permission {
  TW_REMOTE_NONE = 0,
  TW_REMOTE_READ = 1,
  TW_REMOTE_READ_WRITE = 3
} tw_permission;

typedef struct tw_range {
  void* address;
  uint64_t length;
} tw_range;

/* Registers [address, address+length). location: "*" or NULL = find out, "cpu:N", "cuda:N", "neuron:N".
 * The same range again is counted and needs as many unregistrations; a partial overlap is TW_OVERLAP. */
TW_API tw_code tw_register(tw_engine_t engine, void* address, uint64_t length, const char* location,
                           tw_permission permission);
/* Blocks new remote operations, waits for those in flight (bounded, 0.4 s, then their connections are cut), then forgets
 * the region. */
TW_API tw_code tw_unregister(tw_engine_t engine, void* address);
/* All or nothing. On failure nothing new is registered, and the text names the range by index and address. */
TW_API tw_code tw_register_many(tw_engine_t engine, const tw_range* ranges, size_t count, const char* location,
                                tw_permission permission);
TW_API tw_code tw_unregister_many(tw_engine_t engine, void* const* addresses, size_t count);

/* Allocates registered (read-write) pool memory that peers on this host can map. length > 0; page aligned, zeroed. */
TW_API tw_code tw_allocate(tw_engine_t engine, uint64_t length, const char* location, void** out);
/* Unregisters and frees memory from tw_allocate. */
TW_API tw_code tw_free(tw_engine_t engine, void* address);

/* Copies between ordinary process memory and any registered or allocated local memory (also device memory). */
TW_API tw_code tw_copy_in(tw_engine_t engine, void* registered_destination, const void* source, uint64_t length);
TW_API tw_code tw_copy_out(tw_engine_t engine, void* destination, const void* registered_source, uint64_t length);

/* ---- peers ------------------------------------------------------------------------------------- */

/* Opens a peer by "host:port" or metadata name: fetches its record. The same name gives the same handle. */
TW_API tw_code tw_peer_open(tw_engine_t engine, const char* name, tw_peer_t* out);
/* Forgets the handle (counted with tw_peer_open). Connections are kept while other handles or batches use them. */
TW_API tw_code tw_peer_close(tw_engine_t engine, tw_peer_t peer);
/* TW_OK when the peer answers within timeout_ns; lifts its back-off. timeout_ns 0 = the connect timeout. */
TW_API tw_code tw_peer_probe(tw_engine_t engine, const char* name, uint64_t timeout_ns);
/* Address and length of the peer's first registered region (lowest registration number). TW_NOT_FOUND if none. */
TW_API tw_code tw_peer_first_region(tw_engine_t engine, tw_peer_t peer, uint64_t* address, uint64_t* length);

/* ---- transfers --------------------------------------------------------------------------------- */

typedef enum tw_opcode { TW_READ = 0, TW_WRITE = 1 } tw_opcode;

typedef enum tw_state {
  TW_STATE_WAITING = 0,   /* queued */
  TW_STATE_PENDING = 1,   /* some of it posted */
  TW_STATE_INVALID = 2,
  TW_STATE_CANCELED = 3,
  TW_STATE_COMPLETED = 4, /* bytes are placed and visible at the target */
  TW_STATE_TIMEOUT = 5,
  TW_STATE_FAILED = 6
} tw_state;

typedef struct tw_transfer {
  int32_t opcode;      /* tw_opcode */
  int32_t reserved;    /* 0 */
  void* local;         /* WRITE: source, READ: destination; inside local regions */
  tw_peer_t peer;
  uint64_t remote;     /* virtual address at the peer, inside its regions */
  uint64_t length;     /* 0 is allowed and completes */
} tw_transfer;

typedef struct tw_submit_options {
  size_t struct_size;
  uint64_t deadline_ns;        /* from now; 0 = the setting transfer.timeout plus 1 ns per byte */
  const char* notify_name;     /* NULL = no notification; delivered once all transfers are COMPLETED */
  const void* notify_message;  /* may hold NUL bytes */
  size_t notify_length;        /* at most 65,536 */
} tw_submit_options;

typedef struct tw_transfer_status {
  int32_t state;               /* tw_state */
  int32_t code;                /* tw_code */
  uint64_t transferred_bytes;
} tw_transfer_status;

typedef struct tw_batch_status {
  int32_t state;               /* WAITING, PENDING, or when terminal COMPLETED, CANCELED, TIMEOUT, FAILED */
  int32_t code;                /* TW_OK, TW_PARTIAL, or the code shared by all failed transfers */
  uint64_t transfers;
  uint64_t completed;
  uint64_t failed;             /* failed + timed out + canceled */
  uint64_t transferred_bytes;
} tw_batch_status;

/* Submits a batch; count 0 completes at once. Bad arguments of one transfer fail that transfer alone (INVALID), bad
 * arguments of the call fail the call. options may be NULL. */
TW_API tw_code tw_submit(tw_engine_t engine, const tw_transfer* transfers, size_t count, const tw_submit_options* options,
                         tw_batch_t* out);
/* The same for one peer and one opcode, from three arrays of count entries. */
TW_API tw_code tw_submit_lists(tw_engine_t engine, tw_peer_t peer, tw_opcode opcode, const uint64_t* local_addresses,
                               const uint64_t* remote_addresses, const uint64_t* lengths, size_t count,
                               const tw_submit_options* options, tw_batch_t* out);
/* Queues the same on a CUDA stream (a CUstream as a number; 0 = the default stream of the calling thread's context): it starts when the
 * stream comes to it, and what is queued later waits for its end. Returns at once. What fails afterwards is logged, and the next call
 * for that stream returns it. TW_UNSUPPORTED without a CUDA driver in this process, and for a stream that is being captured. */
TW_API tw_code tw_transfer_in_stream(tw_engine_t engine, tw_peer_t peer, tw_opcode opcode, const uint64_t* local_addresses,
                                     const uint64_t* remote_addresses, const uint64_t* lengths, size_t count, uint64_t stream);
/* Waits until the batch is terminal or timeout_ns has passed (UINT64_MAX: until terminal). Returns TW_OK when every transfer
 * COMPLETED, TW_BUSY when it is not yet terminal, otherwise the batch's code. status may be NULL. */
TW_API tw_code tw_batch_wait(tw_batch_t batch, uint64_t timeout_ns, tw_batch_status* status);
TW_API tw_code tw_batch_poll(tw_batch_t batch, tw_batch_status* status);
TW_API tw_code tw_batch_transfer_status(tw_batch_t batch, size_t index, tw_transfer_status* status);
/* The first failed transfer's error text. Same sizing rule as tw_engine_address, but truncates. */
TW_API tw_code tw_batch_error(tw_batch_t batch, char* out, size_t out_size);
/* Starts cancellation; wait for the terminal state. Completed transfers stay completed. */
TW_API tw_code tw_batch_cancel(tw_batch_t batch);
/* An eventfd owned by the batch that becomes readable when it is terminal (for event loops). Do not close it. */
TW_API tw_code tw_batch_fd(tw_batch_t batch, int* out);
/* Frees a terminal batch; TW_BUSY while it is not. */
TW_API tw_code tw_batch_release(tw_batch_t batch);

/* ---- notifications ----------------------------------------------------------------------------- */

typedef struct tw_notification {
  char* name;          /* NUL-terminated */
  void* message;       /* length bytes, plus a NUL that length does not count */
  size_t length;
  char* sender;        /* "host:port" of the sender */
} tw_notification;

/* Sends a message and waits until the peer has it (at most timeout_ns; 0 = the setting transfer.timeout). Exactly once. */
TW_API tw_code tw_notify(tw_engine_t engine, tw_peer_t peer, const char* name, const void* message, size_t length,
                         uint64_t timeout_ns);
/* Takes up to all received notifications, oldest first. *list is NULL and *count 0 when there are none. Free with
 * tw_notifications_free. */
TW_API tw_code tw_notifications_take(tw_engine_t engine, tw_notification** list, size_t* count);
TW_API void tw_notifications_free(tw_notification* list, size_t count);
/* Waits until a notification is there; TW_TIMEOUT otherwise. */
TW_API tw_code tw_notifications_wait(tw_engine_t engine, uint64_t timeout_ns);

/* ---- the machine ------------------------------------------------------------------------------- */

/* NICs, NUMA nodes, accelerators as JSON. Same sizing rule as tw_engine_status_json. */
TW_API tw_code tw_topology_json(char* out, size_t out_size, size_t* needed);
/* The table of settings (name, unit, default, range, value, origin, mooncake name, help) as JSON. */
TW_API tw_code tw_settings_json(char* out, size_t out_size, size_t* needed);

/* ---- test device ------------------------------------------------------------------------------- */
/* Memory that the processor may not touch ("testdev:0"), to prove that no path assumes it may. Only copied through tw_copy_in
 * and tw_copy_out. For tests of Tidewire and of programs that use it. */
TW_API tw_code tw_test_device_allocate(uint64_t length, void** out);
TW_API tw_code tw_test_device_free(void* address);

#ifdef __cplusplus
}
#endif
#endif
