/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain C program against tidewire.h alone. It does what transfer_with_notify.c does with Mooncake's names, and each can be the other's peer: run as
 * "target" it prints its address and buffer and waits for two notifications; run as "initiator ADDRESS BUFFER" it writes a pattern and sends them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidewire/tidewire.h"

enum { kPart = 1 << 20, kParts = 3, kSize = kParts * kPart };
#define SECOND UINT64_C(1000000000)

static unsigned char byte_at(size_t i) { return (unsigned char)((uint64_t)i * 2654435761u >> 13); }

static int fail(const char* what) {
  fprintf(stderr, "%s failed: %s\n", what, tw_last_error());
  return 1;
}

static int check(const unsigned char* buffer, const tw_notification* message, int index) {
  static const char* const names[] = {"request-1", "request-2"};
  static const char* const texts[] = {"kv ready", ""};
  if (index >= 2) return fail("receiving each notification once");
  if (strcmp(message->name, names[index]) != 0 || message->length != strlen(texts[index]) ||
      memcmp(message->message, texts[index], message->length) != 0 || strchr(message->sender, ':') == NULL)
    return fail("a notification's text");
  for (size_t at = 0; at < kSize; ++at)
    if (buffer[at] != byte_at(at)) return fail("the data before its notification");
  return 0;
}

static int target(tw_engine_t engine, const unsigned char* buffer) {
  char address[256];
  if (tw_engine_address(engine, address, sizeof address) != TW_OK) return fail("tw_engine_address");
  printf("%s %llu\n", address, (unsigned long long)(size_t)buffer);
  fflush(stdout);
  for (int received = 0; received < 2;) {
    if (tw_notifications_wait(engine, 60 * SECOND) != TW_OK) return fail("waiting for a notification");
    tw_notification* list = NULL;
    size_t count = 0;
    if (tw_notifications_take(engine, &list, &count) != TW_OK) return fail("tw_notifications_take");
    for (size_t i = 0; i < count; ++i)
      if (check(buffer, &list[i], received++) != 0) return 1;
    tw_notifications_free(list, count);
  }
  printf("received\n");
  return 0;
}

static int wait_for(tw_batch_t batch, uint64_t transfers) {
  tw_batch_status status;
  if (tw_batch_wait(batch, UINT64_MAX, &status) != TW_OK) return fail("tw_batch_wait");
  if (status.state != TW_STATE_COMPLETED || status.completed != transfers || status.transferred_bytes != transfers * kPart)
    return fail("the batch's status");
  if (tw_batch_release(batch) != TW_OK) return fail("tw_batch_release");
  return tw_batch_release(batch) == TW_NOT_FOUND ? 0 : fail("refusing a released batch");
}

static int initiator(tw_engine_t engine, unsigned char* buffer, const char* address, const char* remote) {
  tw_peer_t peer;
  if (tw_peer_open(engine, address, &peer) != TW_OK) return fail("tw_peer_open");
  for (size_t at = 0; at < kSize; ++at) buffer[at] = byte_at(at);
  const uint64_t base = strtoull(remote, NULL, 10);
  tw_transfer transfers[kParts];
  for (uint64_t i = 0; i < kParts; ++i) {
    const tw_transfer one = {TW_WRITE, 0, buffer + i * kPart, peer, base + i * kPart, kPart};
    transfers[i] = one;
  }
  tw_batch_t batch;
  if (tw_submit(engine, transfers, 1, NULL, &batch) != TW_OK) return fail("tw_submit");
  if (wait_for(batch, 1) != 0) return 1;
  const tw_submit_options options = {sizeof options, 30 * SECOND, "request-1", "kv ready", strlen("kv ready")};
  if (tw_submit(engine, transfers + 1, kParts - 1, &options, &batch) != TW_OK) return fail("tw_submit with a notification");
  if (wait_for(batch, kParts - 1) != 0) return 1;

  memset(buffer, 0, kSize);
  for (size_t i = 0; i < kParts; ++i) transfers[i].opcode = TW_READ;
  if (tw_submit(engine, transfers, kParts, NULL, &batch) != TW_OK) return fail("tw_submit of reads");
  if (wait_for(batch, kParts) != 0) return 1;
  for (size_t at = 0; at < kSize; ++at)
    if (buffer[at] != byte_at(at)) return fail("reading back");
  if (tw_notify(engine, peer, "request-2", "", 0, 0) != TW_OK) return fail("tw_notify");
  return tw_peer_close(engine, peer) == TW_OK ? 0 : fail("tw_peer_close");
}

int main(int argc, char** argv) {
  const char* const settings[] = {"transfer.timeout=30", NULL};
  const tw_engine_options options = {.struct_size = sizeof options, .local_name = "127.0.0.1", .settings = settings};
  tw_engine_t engine;
  if (tw_engine_create(&options, &engine) != TW_OK) return fail("tw_engine_create");
  void* buffer;
  if (tw_allocate(engine, kSize, "*", &buffer) != TW_OK) return fail("tw_allocate");
  const int result = argc == 4 ? initiator(engine, buffer, argv[2], argv[3]) : target(engine, buffer);
  if (tw_free(engine, buffer) != TW_OK) return fail("tw_free");
  if (tw_engine_destroy(engine) != TW_OK) return fail("tw_engine_destroy");
  if (tw_engine_destroy(engine) != TW_NOT_FOUND) return fail("refusing a dead engine");
  return result;
}
