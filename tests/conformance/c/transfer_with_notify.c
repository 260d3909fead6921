/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain C program that uses only Mooncake's C names, the ones that TensorRT-LLM calls and with its arguments, to move data and notify. Run as "target"
 * it prints its address and buffer and waits for two notifications; run as "initiator ADDRESS BUFFER" it writes a pattern and sends them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tidewire/transfer_engine_c.h"

enum { kPart = 1 << 20, kParts = 3, kSize = kParts * kPart };

static void pause_ms(long ms) {
  struct timespec time = {0, ms * 1000000};
  nanosleep(&time, NULL);
}

static unsigned char byte_at(size_t i) { return (unsigned char)((uint64_t)i * 2654435761u >> 13); }

static int fail(const char* what) {
  fprintf(stderr, "%s failed\n", what);
  return 1;
}

static int is(const notify_msg_t* message, const char* name, const char* text) {
  return strcmp(message->name, name) == 0 && strcmp(message->msg, text) == 0;
}

static int target(transfer_engine_t engine, unsigned char* buffer) {
  char address[256];
  if (getLocalIpAndPort(engine, address, sizeof address) != 0) return fail("getLocalIpAndPort");
  printf("%s %llu\n", address, (unsigned long long)(size_t)buffer);
  fflush(stdout);
  int received = 0;
  for (int tries = 0; tries < 6000; ++tries) {
    int count = 0;
    notify_msg_t* messages = getNotifsFromEngine(engine, &count);
    for (int i = 0; i < count; ++i, ++received) {
      if (!is(&messages[i], received == 0 ? "request-1" : "request-2", received == 0 ? "kv ready" : "")) return fail("a notification's text");
      for (size_t at = 0; at < kSize; ++at)
        if (buffer[at] != byte_at(at)) return fail("the data before its notification");
    }
    if (messages && freeNotifsMsgBuf(messages, count) != 0) return fail("freeNotifsMsgBuf");
    if (received > 2) return fail("receiving each notification once");
    if (received == 2) {
      printf("received\n");
      return 0;
    }
    pause_ms(10);
  }
  return fail("waiting for the notifications");
}

static int completed(transfer_engine_t engine, batch_id_t batch, size_t task) {
  struct transfer_status status;
  do {
    if (getTransferStatus(engine, batch, task, &status) != 0) return 0;
    if (status.status == STATUS_WAITING || status.status == STATUS_PENDING) pause_ms(1);
  } while (status.status == STATUS_WAITING || status.status == STATUS_PENDING);
  return status.status == STATUS_COMPLETED && status.transferred_bytes == kPart;
}

static int initiator(transfer_engine_t engine, unsigned char* buffer, const char* address, const char* remote) {
  const segment_id_t segment = openSegment(engine, address);
  if (segment < 0) return fail("openSegment");
  for (size_t at = 0; at < kSize; ++at) buffer[at] = byte_at(at);
  const batch_id_t batch = allocateBatchID(engine, 1024);
  if (batch == INVALID_BATCH) return fail("allocateBatchID");
  const uint64_t base = strtoull(remote, NULL, 10);
  struct transfer_request requests[kParts];
  for (uint64_t i = 0; i < kParts; ++i) {
    const struct transfer_request one = {OPCODE_WRITE, buffer + i * kPart, segment, base + i * kPart, kPart};
    requests[i] = one;
  }
  if (submitTransfer(engine, batch, requests, 1) != 0) return fail("submitTransfer");
  if (!completed(engine, batch, 0)) return fail("the first transfer");
  notify_msg_t ready = {(char*)"request-1", (char*)"kv ready"};
  if (submitTransferWithNotify(engine, batch, requests + 1, kParts - 1, ready) != 0) return fail("submitTransferWithNotify");
  for (size_t task = 1; task < kParts; ++task)
    if (!completed(engine, batch, task)) return fail("a transfer with a notification");
  int freed;
  while ((freed = freeBatchID(engine, batch)) == 4) pause_ms(1); /* busy until the notification is there too */
  if (freed != 0) return fail("freeBatchID");
  notify_msg_t more = {(char*)"request-2", (char*)""};
  if (genNotifyInEngine(engine, (uint64_t)segment, more) != 0) return fail("genNotifyInEngine");
  if (freeBatchID(engine, batch) == 0) return fail("refusing a batch that is freed");
  if (submitTransfer(engine, batch, requests, 1) == 0) return fail("refusing a submission to a freed batch");
  return closeSegment(engine, segment);
}

int main(int argc, char** argv) {
  transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
  if (!engine) return fail("createTransferEngine");
  unsigned char* const buffer = calloc(1, kSize);
  if (registerLocalMemory(engine, buffer, kSize, "cpu:0", 1) != 0) return fail("registerLocalMemory");
  const int result = argc == 4 ? initiator(engine, buffer, argv[2], argv[3]) : target(engine, buffer);
  if (unregisterLocalMemory(engine, buffer) != 0) return fail("unregisterLocalMemory");
  if (unregisterLocalMemory(engine, buffer) == 0) return fail("refusing to unregister twice");
  destroyTransferEngine(engine);
  if (openSegment(engine, "127.0.0.1:1") >= 0 || registerLocalMemory(NULL, buffer, 10, "*", 1) == 0) return fail("refusing a dead engine");
  free(buffer);
  return result;
}
