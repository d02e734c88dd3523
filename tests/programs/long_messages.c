/* Two ranks with messages of a MiB and more, most of which the receiver reads in the sender's memory where that is permitted:
 *   long_messages both      96 from each rank to the other at a time, three times
 *   long_messages unasked   rank 0 waits for two sends, and tests one, before rank 1 receives anything
 *   long_messages dies      rank 0 is killed while rank 1 reads its messages; rank 1 says how many it has, and who died
 *   long_messages dropped   nobody waits for what is sent, nor receives it
 * With a further argument `forbidden' the system refuses process_vm_readv from the beginning. */
#include <aiacc/aiacc.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { MESSAGES = 96, ROUNDS = 3 };
static const size_t MIB = 1 << 20;

static void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "%s: %s\n", aiacc_status_name(status), aiacc_last_error());
  exit(1);
}

static void forbid(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("seccomp");
    exit(4);
  }
}

static unsigned char* memory_of(size_t bytes, int value) {
  unsigned char* memory = malloc(bytes);
  if (memory == NULL) exit(3);
  memset(memory, value, bytes);
  return memory;
}

static int all_are(const unsigned char* bytes, size_t count, int value) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != value) return 0;
  }
  return 1;
}

static void expect(const unsigned char* bytes, size_t count, int value) {
  if (all_are(bytes, count, value)) return;
  fprintf(stderr, "wrong bytes, not %d\n", value);
  exit(5);
}

static aiacc_request_t sent(const unsigned char* from, size_t bytes, int to, uint32_t tag) {
  aiacc_request_t request = AIACC_NULL;
  check(aiacc_send(from, bytes, AIACC_UINT8, to, tag, AIACC_WORLD, NULL, &request));
  return request;
}

static aiacc_request_t received(unsigned char* into, size_t bytes, int from, uint32_t tag) {
  aiacc_request_t request = AIACC_NULL;
  check(aiacc_recv(into, bytes, AIACC_UINT8, from, tag, AIACC_WORLD, NULL, &request));
  return request;
}

static void both(int rank) {
  aiacc_request_t requests[2 * MESSAGES];
  unsigned char *out[MESSAGES], *in[MESSAGES];
  for (int i = 0; i < MESSAGES; ++i) out[i] = memory_of(MIB, 0), in[i] = memory_of(MIB, 0);
  for (int round = 0; round < ROUNDS; ++round) {
    for (int i = 0; i < MESSAGES; ++i) memset(out[i], (i + round + 7 * rank) % 256, MIB);
    for (int i = 0; i < MESSAGES; ++i) requests[i] = received(in[i], MIB, 1 - rank, (uint32_t)(i % 5));
    for (int i = 0; i < MESSAGES; ++i) requests[MESSAGES + i] = sent(out[i], MIB, 1 - rank, (uint32_t)(i % 5));
    check(aiacc_wait_all(2 * MESSAGES, requests, AIACC_FOREVER));
    for (int i = 0; i < MESSAGES; ++i) expect(in[i], MIB, (i + round + 7 * (1 - rank)) % 256);
  }
}

static void unasked(int rank) {
  const size_t bytes[3] = {40 * MIB, 43 * MIB, 42 * MIB};
  unsigned char* memory[3];
  for (int i = 0; i < 3; ++i) memory[i] = memory_of(bytes[i], i + 1);
  if (rank == 0) {
    aiacc_request_t requests[3];
    for (int i = 0; i < 3; ++i) requests[i] = sent(memory[i], bytes[i], 1, (uint32_t)i);
    check(aiacc_wait_all(2, requests, AIACC_FOREVER));
    aiacc_status_t status;
    while ((status = aiacc_test(requests[2])) == AIACC_PENDING) continue;
    check(status);
    for (int i = 0; i < 3; ++i) memset(memory[i], 99, bytes[i]);
    check(aiacc_barrier(AIACC_WORLD, NULL, NULL));
    return;
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL));
  for (int i = 3; i-- > 0;) {
    memset(memory[i], 0, bytes[i]);
    check(aiacc_recv(memory[i], bytes[i], AIACC_UINT8, 0, (uint32_t)i, AIACC_WORLD, NULL, NULL));
    expect(memory[i], bytes[i], i + 1);
  }
}

static void dies(int rank) {
  const size_t bytes = 8 * MIB;
  aiacc_request_t requests[MESSAGES / 2];
  unsigned char* in[MESSAGES / 2];
  unsigned char* word = memory_of(1, 0);
  unsigned char* out = rank == 0 ? memory_of(bytes, 42) : NULL;
  if (rank == 0) {
    aiacc_request_t first = received(word, 1, 1, 1);
    for (int i = 0; i < MESSAGES / 2; ++i) requests[i] = sent(out, bytes, 1, 0);
    check(aiacc_wait(first));
    raise(SIGKILL);
  }
  for (int i = 0; i < MESSAGES / 2; ++i) in[i] = memory_of(bytes, 0), requests[i] = received(in[i], bytes, 0, 0);
  check(aiacc_wait(requests[0]));
  expect(in[0], bytes, 42);
  check(aiacc_send(word, 1, AIACC_UINT8, 0, 1, AIACC_WORLD, NULL, NULL));
  int whole = 1;
  aiacc_status_t last = AIACC_OK;
  for (int i = 1; i < MESSAGES / 2; ++i) {
    last = aiacc_wait(requests[i]);
    if (last != AIACC_OK) continue;
    expect(in[i], bytes, 42);
    ++whole;
  }
  if (last == AIACC_OK) { /* all were read before it died, or were in shared memory */
    check(aiacc_recv(word, 1, AIACC_UINT8, 0, 2, AIACC_WORLD, NULL, NULL));
  }
  fprintf(stderr, "%d messages, then %s: %s\n", whole, aiacc_status_name(last), aiacc_last_error());
  exit(1);
}

static void dropped(int rank) {
  unsigned char* memory = memory_of(40 * MIB, rank);
  check(aiacc_request_free(sent(memory, 40 * MIB, 1 - rank, 0)));
  check(aiacc_finalize());
  free(memory);
  exit(0);
}

int main(int argc, char** argv) {
  int rank = 0;
  if (argc < 2) return 2;
  if (argc > 2) forbid();
  check(aiacc_init(NULL));
  check(aiacc_rank(AIACC_WORLD, &rank));
  if (strcmp(argv[1], "both") == 0) both(rank);
  if (strcmp(argv[1], "unasked") == 0) unasked(rank);
  if (strcmp(argv[1], "dies") == 0) dies(rank);
  if (strcmp(argv[1], "dropped") == 0) dropped(rank);
  check(aiacc_finalize());
  return 0;
}
