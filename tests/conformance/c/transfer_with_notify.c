/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain C program that uses only the C names of transfer_engine_c.h, in the order in which TensorRT-LLM calls them. Run as "target" it prints its
 * address and buffer and waits for the notification; run as "initiator ADDRESS BUFFER" it writes a pattern and notifies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tidewire/transfer_engine_c.h"

enum { kSize = 3 << 20 };

static void pause_ms(long ms) {
  struct timespec time = {0, ms * 1000000};
  nanosleep(&time, NULL);
}

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

static int fail(const char* what) {
  fprintf(stderr, "%s failed\n", what);
  return 1;
}

static int target(transfer_engine_t engine, unsigned char* buffer) {
  char address[256];
  if (getLocalIpAndPort(engine, address, sizeof address) != 0) return fail("getLocalIpAndPort");
  printf("%s %llu\n", address, (unsigned long long)(size_t)buffer);
  fflush(stdout);
  for (int tries = 0; tries < 6000; ++tries) {
    int count = 0;
    notify_msg_t* messages = getNotifsFromEngine(engine, &count);
    for (int i = 0; i < count; ++i) {
      if (strcmp(messages[i].name, "request-1") != 0 || strcmp(messages[i].msg, "kv ready") != 0) return fail("the notification's text");
      for (size_t at = 0; at < kSize; ++at)
        if (buffer[at] != byte_at(at)) return fail("the data before its notification");
    }
    if (messages) {
      freeNotifsMsgBuf(messages, count);
      printf("received\n");
      return 0;
    }
    pause_ms(10);
  }
  return fail("waiting for the notification");
}

static int initiator(transfer_engine_t engine, unsigned char* buffer, const char* address, const char* remote) {
  const segment_id_t segment = openSegment(engine, address);
  if (segment < 0) return fail("openSegment");
  for (size_t at = 0; at < kSize; ++at) buffer[at] = byte_at(at);
  const batch_id_t batch = allocateBatchID(engine, 1024);
  if (batch == INVALID_BATCH) return fail("allocateBatchID");
  const unsigned long long base = strtoull(remote, NULL, 10);
  struct transfer_request requests[3];
  for (int i = 0; i < 3; ++i) {
    const struct transfer_request one = {OPCODE_WRITE, buffer + (i << 20), segment, base + ((unsigned long long)i << 20), 1 << 20};
    requests[i] = one;
  }
  notify_msg_t message = {(char*)"request-1", (char*)"kv ready"};
  if (submitTransfer(engine, batch, requests, 1) != 0) return fail("submitTransfer");
  struct transfer_status status;
  do {
    if (getTransferStatus(engine, batch, 0, &status) != 0) return fail("getTransferStatus");
  } while (status.status == STATUS_WAITING || status.status == STATUS_PENDING);
  if (status.status != STATUS_COMPLETED || status.transferred_bytes != 1 << 20) return fail("the first transfer");
  if (submitTransferWithNotify(engine, batch, requests + 1, 2, message) != 0) return fail("submitTransferWithNotify");
  int freed;
  while ((freed = freeBatchID(engine, batch)) == 4) pause_ms(1);
  if (freed != 0) return fail("freeBatchID");
  if (freeBatchID(engine, batch) == 0) return fail("refusing a batch that is freed");
  if (submitTransfer(engine, batch, requests, 1) == 0) return fail("refusing a submission to a freed batch");
  return closeSegment(engine, segment);
}

int main(int argc, char** argv) {
  transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
  if (!engine) return fail("createTransferEngine");
  if (!installTransport(engine, "tcp", NULL)) return fail("installTransport");
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
