/* What a round trip costs in system calls alone, by several ways to wait: 18 bytes each way over
   loopback, each end a process.

   cc -O2 -o waits waits.c && for way in 0 1 2 3 4; do ./waits $way 15000 0 1; done

   Arguments: way, round trips, core of one end, core of the other. Prints the way, the median and
   the 99th percentile in us. Alternate the ways, and keep the cores awake (a process of SCHED_IDLE
   on each), or the figures are those of waking a core. io_uring is called without liburing. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKING, EPOLL, EPOLL_LIMIT, URING_RECEIVE, URING_BOTH, WAYS };
enum { SIZE = 18, ROOM = 8192, LIMIT_MS = 100, ENTRIES = 8 };

static const char *NAMES[WAYS] = {
    "recv", "epoll_wait, recv", "epoll_wait with a time-out, recv", "io_uring receives",
    "io_uring sends and receives in one call"};

static int way, set, ring;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;

static void need(int good, const char *what) {
    if (!good) { perror(what); exit(1); }
}

static void ring_open(void) {
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    ring = syscall(__NR_io_uring_setup, ENTRIES, &p);
    need(ring >= 0, "io_uring_setup");
    int access = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_POPULATE;
    char *sq = mmap(0, p.sq_off.array + p.sq_entries * sizeof(unsigned), access, kind, ring,
                    IORING_OFF_SQ_RING);
    char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(*cqes), access, kind, ring,
                    IORING_OFF_CQ_RING);
    sqes = mmap(0, p.sq_entries * sizeof(*sqes), access, kind, ring, IORING_OFF_SQES);
    need(sq != MAP_FAILED && cq != MAP_FAILED && sqes != MAP_FAILED, "mmap");
    sq_tail = (unsigned *)(sq + p.sq_off.tail), sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    sq_array = (unsigned *)(sq + p.sq_off.array), cq_head = (unsigned *)(cq + p.cq_off.head);
    cq_tail = (unsigned *)(cq + p.cq_off.tail), cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void ring_put(int op, int s, void *data, unsigned size) {
    unsigned tail = *sq_tail, at = tail & *sq_mask;
    struct io_uring_sqe *e = &sqes[at];
    memset(e, 0, sizeof(*e));
    e->opcode = op, e->fd = s, e->addr = (unsigned long)data, e->len = size;
    if (op == IORING_OP_RECV) e->user_data = 1, e->ioprio = IORING_RECVSEND_POLL_FIRST;
    else e->flags = IOSQE_CQE_SKIP_SUCCESS;
    sq_array[at] = at;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void ring_enter(unsigned put, unsigned wanted) {
    unsigned flags = wanted ? IORING_ENTER_GETEVENTS : 0;
    need(syscall(__NR_io_uring_enter, ring, put, wanted, flags, NULL, 0) >= 0, "io_uring_enter");
}

static int ring_received(void) {  /* bytes, or 0 */
    int size = 0;
    unsigned head = *cq_head, tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
    for (; head != tail; head++) {
        if (cqes[head & *cq_mask].user_data == 1) size = cqes[head & *cq_mask].res;
    }
    __atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
    return size;
}

static void begin(int s) {
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLET};
    if (way == EPOLL || way == EPOLL_LIMIT) {
        set = epoll_create1(0);
        need(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, s, &wanted) == 0, "epoll");
    }
    if (way >= URING_RECEIVE) ring_open();
}

static void give(int s, char *data, char *room) {
    if (way != URING_BOTH) {
        need(send(s, data, SIZE, 0) == SIZE, "send");
        return;
    }
    ring_put(IORING_OP_SEND, s, data, SIZE);
    ring_put(IORING_OP_RECV, s, room, ROOM);
    ring_enter(2, 1);
}

static void take(int s, char *room) {
    struct epoll_event found[16];
    int size = 0;
    while (size != SIZE) {
        switch (way) {
        case BLOCKING: size = recv(s, room, ROOM, 0); break;
        case URING_RECEIVE:
            ring_put(IORING_OP_RECV, s, room, ROOM);
            ring_enter(1, 1);
            size = ring_received();
            break;
        case URING_BOTH:
            if ((size = ring_received()) == 0) ring_enter(0, 1);
            break;
        default:
            epoll_wait(set, found, 16, way == EPOLL ? -1 : LIMIT_MS);
            size = recv(s, room, ROOM, MSG_DONTWAIT);
        }
    }
}

static void pin(const char *core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(atoi(core), &cores);
    need(sched_setaffinity(0, sizeof(cores), &cores) == 0, "sched_setaffinity");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void echo(int listener, int trips) {
    static char data[SIZE], room[ROOM];
    int s = accept(listener, NULL, NULL), no_delay = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
    begin(s);
    if (way == URING_BOTH) {
        ring_put(IORING_OP_RECV, s, room, ROOM);
        ring_enter(1, 0);
    }
    while (trips--) {
        take(s, room);
        if (trips) give(s, data, room);
        else need(send(s, data, SIZE, 0) == SIZE, "send");
    }
    _exit(0);
}

int main(int argc, char **argv) {
    static char data[SIZE], room[ROOM];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0), s, no_delay = 1;
    if (argc != 5 || (way = atoi(argv[1])) < 0 || way >= WAYS || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: waits WAY TRIPS CORE CORE; ways are 0 to %d\n", WAYS - 1);
        return 2;
    }
    int trips = atoi(argv[2]);
    need(!bind(listener, (void *)&at, size) && !listen(listener, 1), "listen");
    getsockname(listener, (void *)&at, &size);
    if (fork() == 0) {
        pin(argv[4]);
        echo(listener, trips);
    }
    pin(argv[3]);
    s = socket(AF_INET, SOCK_STREAM, 0);
    need(connect(s, (void *)&at, size) == 0, "connect");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
    begin(s);
    double *took = malloc(trips * sizeof(double));
    need(took != NULL, "malloc");
    for (int i = 0; i < trips; i++) {
        took[i] = now();
        give(s, data, room);
        take(s, room);
        took[i] = now() - took[i];
    }
    qsort(took, trips, sizeof(double), order);
    printf("%-42s %6.2f %6.2f\n", NAMES[way], took[trips / 2], took[trips * 99L / 100]);
    return 0;
}
