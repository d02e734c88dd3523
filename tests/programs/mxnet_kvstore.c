/* Shaped like MXNet's KVStore over an engine: workers push gradients and pull weights with priorities, completion comes
 * through callbacks that notify the engine, and each rank is also the server of some keys, which handles messages while it
 * has posted no collective. Exits with 0 if every pull saw every push of its round. */
#include <aiacc/aiacc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { kKeys = 7, kRounds = 25, kValues = 3000, kMostRanks = 16, kToServer = 1, kToWorker = 100 };
enum { kPush, kPull, kStop };

typedef struct {
  int what, key;
  float values[kValues];
} Message;

/* --- the engine: variables become ready when their operation's callback says so -------------------------------------- */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static int done[kKeys]; /* pulls that have arrived, of each key */
static int rank, size, left_to_serve;

static void check(aiacc_status_t status, const char* error) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "rank %d: %s: %s\n", rank, aiacc_status_name(status), error);
  _Exit(1);
}
static void call(aiacc_status_t status) { check(status, aiacc_last_error()); }

static aiacc_attr_t with(aiacc_callback_t callback, void* arg, int priority) {
  aiacc_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.callback = callback;
  attr.callback_arg = arg;
  attr.priority = priority;
  return attr;
}

static void free_sent(aiacc_status_t status, const char* error, void* arg) {
  check(status, error);
  free(arg);
}

static void send(int to, uint32_t tag, const Message* message, int priority) {
  Message* copy = malloc(sizeof *copy);
  if (copy == NULL) _Exit(2);
  *copy = *message;
  const aiacc_attr_t attr = with(free_sent, copy, priority);
  call(aiacc_send(copy, sizeof *copy, AIACC_UINT8, to, tag, AIACC_WORLD, &attr, NULL));
}

/* --- the server: callbacks come one at a time, so its state needs no lock --------------------------------------------- */
static struct {
  float weight[kValues], sum[kValues];
  int pushes, has_pushed[kMostRanks], waiting[kMostRanks], n_waiting;
} store[kKeys];
static Message inbox[kMostRanks];

static void answer(int key, int worker) {
  Message weights = {kPull, key, {0}};
  for (int i = 0; i < kValues; ++i) weights.values[i] = store[key].weight[i];
  send(worker, kToWorker + (uint32_t)key, &weights, kKeys - key);
}

static void serve(int worker);

static void arrived(aiacc_status_t status, const char* error, void* arg) {
  check(status, error);
  const int worker = (int)((Message*)arg - inbox);
  const Message* message = arg;
  const int key = message->key;
  if (message->what == kStop) {
    pthread_mutex_lock(&lock);
    --left_to_serve;
    pthread_cond_broadcast(&ready);
    pthread_mutex_unlock(&lock);
    return;
  }
  if (message->what == kPush) {
    for (int i = 0; i < kValues; ++i) store[key].sum[i] += message->values[i];
    store[key].has_pushed[worker] = 1;
    if (++store[key].pushes == size) { /* the optimizer's step */
      for (int i = 0; i < kValues; ++i) store[key].weight[i] += store[key].sum[i], store[key].sum[i] = 0;
      store[key].pushes = 0;
      for (int w = 0; w < size; ++w) store[key].has_pushed[w] = 0;
      while (store[key].n_waiting > 0) answer(key, store[key].waiting[--store[key].n_waiting]);
    }
  } else if (store[key].has_pushed[worker]) {
    store[key].waiting[store[key].n_waiting++] = worker;
  } else { /* others may be in the next round already, for which this worker must not wait */
    answer(key, worker);
  }
  serve(worker);
}

static void serve(int worker) {
  const aiacc_attr_t attr = with(arrived, &inbox[worker], 0);
  call(aiacc_recv(&inbox[worker], sizeof(Message), AIACC_UINT8, worker, kToServer, AIACC_WORLD, &attr, NULL));
}

/* --- the worker ------------------------------------------------------------------------------------------------------- */
static Message pulled[kKeys];

static void pull_done(aiacc_status_t status, const char* error, void* arg) {
  check(status, error);
  pthread_mutex_lock(&lock);
  ++done[(Message*)arg - pulled];
  pthread_cond_broadcast(&ready);
  pthread_mutex_unlock(&lock);
}

static void push_and_pull(int key, int round) {
  static Message message;
  message.what = kPush;
  message.key = key;
  for (int i = 0; i < kValues; ++i) message.values[i] = (float)((rank + 1) * (round + 1) + key);
  send(key % size, kToServer, &message, -key);
  const aiacc_attr_t attr = with(pull_done, &pulled[key], kKeys - key);
  call(aiacc_recv(&pulled[key], sizeof(Message), AIACC_UINT8, key % size, kToWorker + (uint32_t)key, AIACC_WORLD, &attr,
                  NULL));
  message.what = kPull;
  send(key % size, kToServer, &message, kKeys - key);
}

static float expected_after(int key, int rounds) {
  float weight = 0;
  for (int round = 0; round < rounds; ++round)
    for (int worker = 0; worker < size; ++worker) weight += (float)((worker + 1) * (round + 1) + key);
  return weight;
}

int main(void) {
  call(aiacc_init(NULL));
  call(aiacc_rank(AIACC_WORLD, &rank));
  call(aiacc_size(AIACC_WORLD, &size));
  left_to_serve = size;
  for (int worker = 0; worker < size; ++worker) serve(worker);
  for (int round = 0; round < kRounds; ++round) {
    for (int key = kKeys; key-- > 0;) push_and_pull(key, round);
    for (int key = 0; key < kKeys; ++key) {
      pthread_mutex_lock(&lock);
      while (done[key] <= round) pthread_cond_wait(&ready, &lock); /* WaitToRead */
      pthread_mutex_unlock(&lock);
      if (pulled[key].values[kValues - 1] != expected_after(key, round + 1)) {
        fprintf(stderr, "rank %d, round %d: key %d is %g and not %g\n", rank, round, key,
                (double)pulled[key].values[kValues - 1], (double)expected_after(key, round + 1));
        _Exit(3);
      }
    }
  }
  static const Message stop = {kStop, 0, {0}};
  for (int server = 0; server < size; ++server) send(server, kToServer, &stop, 0);
  pthread_mutex_lock(&lock);
  while (left_to_serve > 0) pthread_cond_wait(&ready, &lock);
  pthread_mutex_unlock(&lock);
  call(aiacc_finalize());
  return 0;
}
