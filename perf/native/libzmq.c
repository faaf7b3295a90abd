/* One end of a measurement over libzmq's C API: what perf/native.py compares mqcore with.
 *
 *   libzmq ROLE URL SIZE COUNT WARM HWM CPU
 *
 * The roles, the lines and the meaning of every figure are those of perf/ends.py. HWM 0 leaves the
 * default; CPU -1 pins nothing. Small bodies are copied into a message of their own, large ones are
 * sent by reference: what is best for libzmq, and what mqcore does as well. */

#define _GNU_SOURCE
#include <zmq.h>

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BODIES = 256, BODY_BYTES = 16 << 20, BY_REFERENCE = 4096 };

static void *context, *sock;
static size_t size, n_bodies;
static char *bodies;
static volatile unsigned sum; /* the receiver looks at what it got */

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void make_bodies(void) {
    uint64_t x = 0x9e3779b97f4a7c15u + size;
    n_bodies = BODY_BYTES / (size ? size : 1);
    n_bodies = n_bodies > MOST_BODIES ? MOST_BODIES : n_bodies < 8 ? 8 : n_bodies;
    bodies = malloc(n_bodies * size + 1);
    check(bodies != NULL, "malloc");
    for (size_t i = 0; i < n_bodies * size; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bodies[i] = (char) x;
    }
}

static void keep(void *data, void *hint) { (void) data, (void) hint; }

static void give(size_t i) {
    zmq_msg_t message;
    char *body = bodies + i % n_bodies * size;
    if (size >= BY_REFERENCE) {
        check(zmq_msg_init_data(&message, body, size, keep, NULL) == 0, "zmq_msg_init_data");
    } else {
        check(zmq_msg_init_size(&message, size) == 0, "zmq_msg_init_size");
        memcpy(zmq_msg_data(&message), body, size);
    }
    check(zmq_msg_send(&message, sock, 0) >= 0, "zmq_msg_send");
}

static void take(zmq_msg_t *message) {
    check(zmq_msg_recv(message, sock, 0) == (int) size, "zmq_msg_recv");
    if (size) sum += *(unsigned char *) zmq_msg_data(message);
}

static void give_all(size_t count) {
    for (size_t i = 0; i < count; i++) give(i);
}

static void take_all(size_t count) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    while (count--) take(&message);
    zmq_msg_close(&message);
}

static void echo(size_t count) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    while (count--) {
        take(&message);
        check(zmq_msg_send(&message, sock, 0) >= 0, "zmq_msg_send");
    }
    zmq_msg_close(&message);
}

static void ask(size_t count, double *trips) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    for (size_t i = 0; i < count; i++) {
        double before = seconds(CLOCK_MONOTONIC);
        give(i);
        take(&message);
        trips[i] = seconds(CLOCK_MONOTONIC) - before;
    }
    zmq_msg_close(&message);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static void open_socket(const char *role, const char *url, int hwm) {
    char real[256];
    size_t length = sizeof real;
    int source = !strcmp(role, "source"), sink = !strcmp(role, "sink");
    int echoes = !strcmp(role, "echo");
    context = zmq_ctx_new();
    sock = zmq_socket(context, source ? ZMQ_PUSH : sink ? ZMQ_PULL : echoes ? ZMQ_REP : ZMQ_REQ);
    check(sock != NULL, "zmq_socket");
    if (hwm) {
        check(zmq_setsockopt(sock, ZMQ_SNDHWM, &hwm, sizeof hwm) == 0, "ZMQ_SNDHWM");
        check(zmq_setsockopt(sock, ZMQ_RCVHWM, &hwm, sizeof hwm) == 0, "ZMQ_RCVHWM");
    }
    if (!sink && !echoes) {
        check(zmq_connect(sock, url) == 0, "zmq_connect");
        return;
    }
    check(zmq_bind(sock, url) == 0, "zmq_bind");
    check(zmq_getsockopt(sock, ZMQ_LAST_ENDPOINT, real, &length) == 0, "ZMQ_LAST_ENDPOINT");
    puts(real);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: libzmq ROLE URL SIZE COUNT WARM HWM CPU\n");
        return 2;
    }
    const char *role = argv[1];
    size_t count = strtoul(argv[4], NULL, 10), warm = strtoul(argv[5], NULL, 10);
    int cpu = atoi(argv[7]), asks = !strcmp(role, "ask");
    double *trips = malloc((count > warm ? count : warm) * sizeof *trips);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    size = strtoul(argv[3], NULL, 10);
    make_bodies();
    open_socket(role, argv[2], atoi(argv[6]));

    double cpu_before = 0, before = 0;
    for (int round = 0; round < 2; round++) {
        size_t n = round ? count : warm;
        cpu_before = seconds(CLOCK_PROCESS_CPUTIME_ID);
        before = seconds(CLOCK_MONOTONIC);
        if (asks) ask(n, trips);
        else if (!strcmp(role, "echo")) echo(n);
        else if (!strcmp(role, "sink")) take_all(n);
        else give_all(n);
    }
    double took = seconds(CLOCK_MONOTONIC) - before;
    puts("done");
    fflush(stdout);
    while (getchar() != EOF) {} /* until the other end has everything */
    double used = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_before;
    printf("{\"seconds\": %.9f, \"cpu\": %.9f, \"messages\": %zu", took, used, count);
    if (asks) {
        qsort(trips, count, sizeof *trips, ascending);
        printf(", \"p50\": %.9f, \"p99\": %.9f, \"p999\": %.9f", trips[count / 2],
               trips[count * 99 / 100], trips[count * 999 / 1000]);
    }
    puts("}");
    fflush(stdout);
    _exit(0); /* nothing of the teardown is waited for */
}
