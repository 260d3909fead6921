/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: the C interface of the Tidewire store, a distributed cache of objects (key → bytes) in the pooled memory of its clients.
 *
 * A store handle is a client of one master ("host:port"). It may lend memory (segments) to the pool, and puts and gets objects directly between the
 * machines, through an engine of its own or one that it is given. An object is complete or absent: no reader sees a part of one, or a mix of two.
 *
 * Conventions, beside those of tidewire.h (whose tw_code, tw_last_error and handles it shares)
 *  - Results per key are 64-bit: >= 0 is success (bytes where the call says so), negative a store code as the interface's documents number them:
 *    -200 no space for now, -704 not found, -706 a reader has a lease, -800 transfer failed, … (tw_store_code_name).
 *  - Lists of keys are one blob of bytes without separators plus lengths. Keys have 1 to 4,096 bytes.
 *  - Memory of the caller that is registered (tw_store_register, tw_register of the shared engine) is moved without a copy; other memory is staged
 *    through the client's buffer. It may be reused or freed once the call has returned.
 *  - All functions may be called from any thread and block at most for the store's operation timeout (setting store.timeout).
 */
#ifndef TIDEWIRE_STORE_H
#define TIDEWIRE_STORE_H

#include "tidewire/tidewire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t tw_store_t;

typedef struct tw_store_options {
  size_t struct_size;
  const char* local_name;      /* advertised "host" or "host:port"; NULL = "127.0.0.1" */
  const char* metadata;        /* as tw_engine_options.metadata */
  const char* protocol;        /* as tw_engine_options.protocol */
  const char* devices;
  const char* master;          /* "host:port"; NULL = "127.0.0.1:50051" */
  uint64_t segment_bytes;      /* memory to lend to the pool; 0 = none (a client that only puts and gets) */
  uint64_t local_buffer_bytes; /* for staging unregistered memory and for tw_store_get; 0 = 16 MiB */
  tw_engine_t engine;          /* 0 = an engine of its own; otherwise one that outlives the store and is not closed with it */
  const char* const* settings; /* as tw_engine_options.settings */
} tw_store_options;

typedef struct tw_store_keys {
  const char* bytes;         /* the keys one after the other */
  const uint64_t* lengths;   /* of each, bytes */
  size_t count;
} tw_store_keys;

typedef struct tw_store_put_options {
  size_t struct_size;
  int32_t upsert;                 /* 0: a key that exists keeps its bytes (result -705) */
  uint32_t replicas;              /* on different segments, different hosts where there are; 0 = 1 */
  int32_t soft_pin;               /* 0 keep as it is, 1 on, 2 off: evicted only when nothing else is left */
  uint64_t soft_pin_ttl_ns;       /* 0 = the master's default */
  int32_t hard_pin;               /* never evicted */
  int32_t prefer_same_host;
  const char* const* preferred_segments; /* NULL or NULL-terminated names ("host:port" of their owners) */
  uint8_t data_type;              /* kept with the object, 0 … 9 */
  const tw_store_keys* groups;    /* NULL, or one group id for each key ("" = none): kept and evicted together, in the order given */
} tw_store_put_options;

/* ---- clients ------------------------------------------------------------------------------------------------------------------------------- */

/* "OBJECT_NOT_FOUND" for -704. Never NULL. */
TW_API const char* tw_store_code_name(int64_t code);

/* Connects, mounts the segment, and returns once a put can succeed (its first chunk is ready). TW_UNREACHABLE names the master. */
TW_API tw_code tw_store_create(const tw_store_options* options, tw_store_t* out);
/* Unmounts the segments: their replicas are gone. */
TW_API tw_code tw_store_destroy(tw_store_t store);
/* "host:port" of the client's engine. Sizing as tw_engine_address. */
TW_API tw_code tw_store_name(tw_store_t store, char* out, size_t out_size);
/* 0 in contact with the master, 1 not (work goes on as far as it can), 2 closed. */
TW_API int tw_store_health(tw_store_t store);
/* Counters and segments as JSON. Sizing as tw_engine_status_json. */
TW_API tw_code tw_store_status_json(tw_store_t store, char* out, size_t out_size, size_t* needed);

TW_API tw_code tw_store_register(tw_store_t store, void* address, uint64_t length);
TW_API tw_code tw_store_unregister(tw_store_t store, void* address);

/* Lends `length` more bytes. *ordinal names the segment in tw_store_unmount. `address`: NULL = allocate them; otherwise memory of the caller. */
TW_API tw_code tw_store_mount(tw_store_t store, void* address, uint64_t length, const char* location, uint32_t* ordinal);
TW_API tw_code tw_store_unmount(tw_store_t store, uint32_t ordinal);
/* Memory from the client's registered pool, for values; NULL when there is no room. */
TW_API void* tw_store_allocate(tw_store_t store, uint64_t length);
TW_API tw_code tw_store_free(tw_store_t store, void* address);

/* Puts each key from its parts, one after the other: part_counts[i] of (addresses, lengths) belong to key i; NULL = one each. results[i]: 0 or a
 * negative code. Total size of a key must be > 0. options may be NULL. */
TW_API tw_code tw_store_put(tw_store_t store, const tw_store_keys* keys, const uint32_t* part_counts, const uint64_t* addresses,
                            const uint64_t* lengths, const tw_store_put_options* options, int64_t* results);
/* Gets each object into its parts: part j takes lengths[j] bytes of the object from offsets[j] on; offsets NULL = the parts follow one another
 * from 0, and the object must fit into them (-600 otherwise; nothing written). results[i]: bytes or a negative code. */
TW_API tw_code tw_store_get_into(tw_store_t store, const tw_store_keys* keys, const uint32_t* part_counts, const uint64_t* addresses,
                                 const uint64_t* lengths, const uint64_t* offsets, int64_t* results);

typedef struct tw_store_buffer {
  const void* data;   /* NULL when result < 0 */
  uint64_t size;
  int64_t result;     /* bytes or a negative code */
  uint64_t handle;    /* for tw_store_buffer_release; 0 when there is nothing to release */
} tw_store_buffer;
/* Gets objects into memory of the store; out has one entry for each key. */
TW_API tw_code tw_store_get(tw_store_t store, const tw_store_keys* keys, tw_store_buffer* out);
TW_API void tw_store_buffer_release(uint64_t handle);

/* results[i]: 1, 0 or a negative code. */
TW_API tw_code tw_store_exists(tw_store_t store, const tw_store_keys* keys, int64_t* results);
/* results[i]: bytes or a negative code. */
TW_API tw_code tw_store_sizes(tw_store_t store, const tw_store_keys* keys, int64_t* results);
/* results[i]: 0 or a negative code (-704, -706). force: also under readers' leases (they still read right bytes or are told). */
TW_API tw_code tw_store_remove(tw_store_t store, const tw_store_keys* keys, int force, int64_t* results);
/* Removes all keys in which the regular expression (ECMAScript) matches; NULL or "" = all. *count: how many, or a negative code. */
TW_API tw_code tw_store_remove_matching(tw_store_t store, const char* pattern, int force, int64_t* count);

/* Replicas of each key as JSON: an array with, for each key, an array of {"size", "address", "endpoint", "status"}. Sizing as tw_engine_status_json. */
TW_API tw_code tw_store_replicas_json(tw_store_t store, const tw_store_keys* keys, char* out, size_t out_size, size_t* needed);

/* Sessions: one question to the master, then many ranges. results[i]: 0 or a negative code; keys that are in a session already are skipped (0). */
TW_API tw_code tw_store_get_session_start(tw_store_t store, const tw_store_keys* keys, int64_t* results);
TW_API tw_code tw_store_get_session_end(tw_store_t store, const tw_store_keys* keys, int64_t* results);
TW_API tw_code tw_store_put_session_start(tw_store_t store, const tw_store_keys* keys, const uint64_t* sizes,
                                          const tw_store_put_options* options, int64_t* results);
/* Writes ranges of objects in a put session: part j goes to offsets[j]. results[i]: bytes or a negative code. (Ranges of objects in a get session are
 * read by tw_store_get_into with offsets.) */
TW_API tw_code tw_store_put_session_write(tw_store_t store, const tw_store_keys* keys, const uint32_t* part_counts, const uint64_t* addresses,
                                          const uint64_t* lengths, const uint64_t* offsets, int64_t* results);
/* Seals: waits for ranges in flight, then makes the objects visible (commit) or gives their space back (revoke). */
TW_API tw_code tw_store_put_session_end(tw_store_t store, const tw_store_keys* keys, int commit, int64_t* results);

/* ---- the master ---------------------------------------------------------------------------------------------------------------------------- */

typedef uint64_t tw_master_t;

typedef struct tw_master_options {
  size_t struct_size;
  const char* host;             /* to listen on; NULL = "127.0.0.1" */
  uint16_t port;                /* 0 = chosen by the kernel */
  const char* advertised;       /* "host:port" as clients know it; NULL = where it listens */
  const char* admin_host;       /* of the HTTP pages; NULL = no pages */
  uint16_t admin_port;          /* 0 = chosen by the kernel */
  int32_t admin_open;           /* 1: /metrics and /health for everybody who reaches them; the rest needs loopback or the cluster secret in any case */
  const char* journal;          /* folder of the journal; NULL = none: a restarted master then learns everything from the owners */
  uint64_t lease_ns;            /* of readers; 0 = 10 s. This and all below: 0 = default */
  uint64_t client_ttl_ns;       /* 10 s */
  uint64_t soft_pin_ttl_ns;     /* 30 min */
  uint64_t max_soft_pin_ttl_ns; /* 24 h */
  int32_t keep_soft_pinned;     /* 1: soft-pinned objects are never evicted before their time */
  double high_watermark;        /* 0.90: eviction starts when so much of a segment is used */
  double eviction_ratio;        /* 0.05: and ends so much below */
  uint64_t put_wait_ns;         /* 1 s: how long a put waits for room */
  uint64_t write_lease_ns;      /* 2 s: silence after which a writer is given up */
  const char* const* settings;  /* as tw_engine_options.settings: log, secret */
} tw_master_options;

/* Starts a master on threads of its own; returns once it listens. TW_ADDRESS_IN_USE names the port. */
TW_API tw_code tw_master_create(const tw_master_options* options, tw_master_t* out);
TW_API tw_code tw_master_destroy(tw_master_t master);
/* "host:port" of the master, and of its pages ("" when it has none). Sizing as tw_engine_address. */
TW_API tw_code tw_master_address(tw_master_t master, char* out, size_t out_size);
TW_API tw_code tw_master_admin_address(tw_master_t master, char* out, size_t out_size);
/* Clients, segments, counters as JSON. Sizing as tw_engine_status_json. */
TW_API tw_code tw_master_status_json(tw_master_t master, char* out, size_t out_size, size_t* needed);

#ifdef __cplusplus
}
#endif
#endif
