/* libpgm 5.3 as this engine uses it, opened when it is first needed.
 *
 * The library is LGPL-2.1, and these are our own declarations of its binary interface: nothing of
 * it is needed to compile, and its file may be replaced by another build. tests/test_library.py
 * compares the layouts with the library's headers where these are installed.
 */
#pragma once

#include <dlfcn.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { PGM_PROTOCOL = 113 };

enum {
    PGM_IO_ERROR, PGM_IO_NORMAL, PGM_IO_RESET, PGM_IO_FIN, PGM_IO_EOF, PGM_IO_WOULD_BLOCK,
    PGM_IO_RATE_LIMITED, PGM_IO_TIMER_PENDING, PGM_IO_CONGESTION
};

enum {
    PGM_OPT_SEND_SOCK = 0x2000, PGM_OPT_RECV_SOCK = 0x2001, PGM_OPT_REPAIR_SOCK = 0x2002,
    PGM_OPT_PENDING_SOCK = 0x2003, PGM_OPT_TIME_REMAIN = 0x2005, PGM_OPT_RATE_REMAIN = 0x2006,
    PGM_OPT_MTU = 0x2008, PGM_OPT_MSSS = 0x2009, PGM_OPT_MULTICAST_LOOP = 0x200c,
    PGM_OPT_MULTICAST_HOPS = 0x200d, PGM_OPT_AMBIENT_SPM = 0x200f, PGM_OPT_HEARTBEAT_SPM = 0x2010,
    PGM_OPT_TXW_SQNS = 0x2012, PGM_OPT_TXW_MAX_RTE = 0x2014, PGM_OPT_PEER_EXPIRY = 0x2015,
    PGM_OPT_SPMR_EXPIRY = 0x2016, PGM_OPT_RXW_SQNS = 0x2018, PGM_OPT_NAK_BO_IVL = 0x201b,
    PGM_OPT_NAK_RPT_IVL = 0x201c, PGM_OPT_NAK_RDATA_IVL = 0x201d,
    PGM_OPT_NAK_DATA_RETRIES = 0x201e, PGM_OPT_NAK_NCF_RETRIES = 0x201f,
    PGM_OPT_SEND_ONLY = 0x2023, PGM_OPT_RECV_ONLY = 0x2024, PGM_OPT_NOBLOCK = 0x2027,
    PGM_OPT_SEND_GROUP = 0x2028, PGM_OPT_JOIN_GROUP = 0x2029, PGM_OPT_UCAST_PORT = 0x2030,
    PGM_OPT_MCAST_PORT = 0x2031
};

typedef struct { uint8_t gsi[6]; uint16_t port; } PgmTsi;

typedef struct { uint16_t port; PgmTsi tsi; } PgmAddress;

typedef struct {
    uint32_t index;
    uint32_t scope;
    struct sockaddr_storage address;
} PgmInterface;

typedef struct { int domain; int code; char* message; } PgmError;

typedef struct {
    void* link[3];
    void* sock;
    uint64_t stamp;
    PgmTsi tsi;
    uint32_t sequence;
    uint32_t padding;
    char control[48];
    uint16_t size;
    unsigned zero_padded : 1;
    unsigned padding_2 : 31;
    void* header;
    void* fragment;
    void* congestion;
    void* data_header;
    void* head;
    void* data;
    void* tail;
    void* end;
    uint32_t whole;
    volatile uint32_t users;
} PgmPacket;

enum { PGM_FRAGMENTS = 16 };

typedef struct { uint32_t n; PgmPacket* packets[PGM_FRAGMENTS]; } PgmMessage;

typedef struct {
    void* handle;
    int* log_level;
    bool (*init)(PgmError**);
    void (*error_free)(PgmError*);
    bool (*socket)(void**, sa_family_t, int, int, PgmError**);
    bool (*bind3)(void*, const PgmAddress*, socklen_t, const PgmInterface*, socklen_t,
                  const PgmInterface*, socklen_t, PgmError**);
    bool (*connect)(void*, PgmError**);
    bool (*close)(void*, bool);
    bool (*set)(void*, int, int, const void*, socklen_t);
    bool (*get)(void*, int, int, void*, socklen_t*);
    int (*send)(void*, const void*, size_t, size_t*);
    int (*recv)(void*, PgmMessage*, size_t, int, size_t*, PgmError**);
    void (*free)(void*);
} PgmLibrary;

/* The text says why it cannot be used; NULL: it can. Call it with the GIL. */
static inline const char* pgm_open(PgmLibrary* lib, const char* name) {
    static char text[256];
    PgmError* error = NULL;
    const struct { const char* name; void** at; } all[] = {
        {"pgm_min_log_level", (void**) &lib->log_level},
        {"pgm_init", (void**) &lib->init},
        {"pgm_error_free", (void**) &lib->error_free},
        {"pgm_socket", (void**) &lib->socket},
        {"pgm_bind3", (void**) &lib->bind3},
        {"pgm_connect", (void**) &lib->connect},
        {"pgm_close", (void**) &lib->close},
        {"pgm_setsockopt", (void**) &lib->set},
        {"pgm_getsockopt", (void**) &lib->get},
        {"pgm_send", (void**) &lib->send},
        {"pgm_recvmsgv", (void**) &lib->recv},
        {"pgm_free", (void**) &lib->free},
    };
    if (lib->handle != NULL)
        return NULL;
    void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(text, sizeof(text), "%s", dlerror());
        return text;
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        *all[i].at = dlsym(handle, all[i].name);
        if (*all[i].at == NULL) {
            snprintf(text, sizeof(text), "%s has no %s", name, all[i].name);
            dlclose(handle);
            return text;
        }
    }
    *lib->log_level = 6;      /* only what ends the process; the rest comes back as errors */
    if (!lib->init(&error)) {
        snprintf(text, sizeof(text), "%s", error != NULL ? error->message : "it does not start");
        if (error != NULL)
            lib->error_free(error);
        dlclose(handle);
        return text;
    }
    lib->handle = handle;
    return NULL;
}

static inline bool pgm_set_int(const PgmLibrary* lib, void* sock, int option, int value) {
    return lib->set(sock, PGM_PROTOCOL, option, &value, sizeof(value));
}

static inline int pgm_get_int(const PgmLibrary* lib, void* sock, int option) {
    int value = -1;
    socklen_t size = sizeof(value);
    return lib->get(sock, PGM_PROTOCOL, option, &value, &size) ? value : -1;
}

/* ns until the timer or the rate limit that the option names */
static inline int64_t pgm_get_ns(const PgmLibrary* lib, void* sock, int option) {
    struct timeval left = {0, 0};
    socklen_t size = sizeof(left);
    lib->get(sock, PGM_PROTOCOL, option, &left, &size);
    return (int64_t) left.tv_sec * 1000000000 + (int64_t) left.tv_usec * 1000;
}

/* Join the group, or send to it, at an interface. */
static inline bool pgm_group(const PgmLibrary* lib, void* sock, int option, unsigned index,
                             const void* group, size_t size) {
    struct group_req request;
    memset(&request, 0, sizeof(request));
    request.gr_interface = index;
    memcpy(&request.gr_group, group, size);
    return lib->set(sock, PGM_PROTOCOL, option, &request, sizeof(request));
}
