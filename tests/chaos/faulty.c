/* Injects errors of files and jumps of the wall clock into a process that loads this library with LD_PRELOAD.
 *
 * CHAOS_CONTROL names a file that is mapped here and by tests/chaos/faulty.py:
 *   int64 offset_ns of the wall clock of all processes
 *   32 x { int32 pid; int32 left; int64 offset_ns }   left: the next reads, writes and syncs below CHAOS_ROOT that fail with EIO
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 32
#define SECOND 1000000000LL

struct slot { int32_t pid, left; int64_t offset_ns; };
struct control { int64_t offset_ns; struct slot slots[SLOTS]; };

static volatile struct control *control;
static char root[4096];
static size_t root_length;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("CHAOS_CONTROL"), *below = getenv("CHAOS_ROOT");
    if (!path || !below) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    root_length = strlen(below);
    if (root_length >= sizeof root) return;
    memcpy(root, below, root_length + 1);
    control = mapped;
}

static volatile struct slot *own(void) {
    if (!control) return NULL;
    int32_t pid = 0;
    for (int i = 0; i < SLOTS; i++) {
        int32_t owner = control->slots[i].pid;
        if (!owner) continue;
        if (!pid) pid = (int32_t)getpid();
        if (owner == pid) return &control->slots[i];
    }
    return NULL;
}

static int is_failing(int fd) {
    volatile struct slot *slot = own();
    if (!slot || slot->left <= 0) return 0;
    int before = errno;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < (ssize_t)root_length || memcmp(path, root, root_length)) return 0;
    path[length] = 0;
    if (length > 4 && !strcmp(path + length - 4, ".log")) return 0; /* logs must stay readable */
    if (__sync_fetch_and_sub(&slot->left, 1) <= 0) return 0;
    errno = EIO;
    return 1;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t read(int fd, void *to, size_t n) { REAL(read); return is_failing(fd) ? -1 : real(fd, to, n); }
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { REAL(pread64); return is_failing(fd) ? -1 : real(fd, to, n, at); }
ssize_t write(int fd, const void *from, size_t n) { REAL(write); return is_failing(fd) ? -1 : real(fd, from, n); }
ssize_t writev(int fd, const struct iovec *from, int n) { REAL(writev); return is_failing(fd) ? -1 : real(fd, from, n); }
int fsync(int fd) { REAL(fsync); return is_failing(fd) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fdatasync); return is_failing(fd) ? -1 : real(fd); }

static int64_t offset_ns(void) {
    if (!control) return 0;
    volatile struct slot *slot = own();
    return control->offset_ns + (slot ? slot->offset_ns : 0);
}

static void move(struct timespec *t, int64_t by_ns) {
    int64_t ns = t->tv_sec * SECOND + t->tv_nsec + by_ns;
    t->tv_sec = ns / SECOND;
    t->tv_nsec = ns % SECOND;
}

int clock_gettime(clockid_t which, struct timespec *t) {
    REAL(clock_gettime);
    int result = real(which, t);
    if (!result && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) move(t, offset_ns());
    return result;
}

int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}

/* The kernel waits until a time of its wall clock: a real jump would shorten or prolong the wait as this does. The
 * deadline of a condition variable that uses the monotonic clock is far smaller. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    REAL(pthread_cond_timedwait);
    struct timespec moved = *until;
    if (until->tv_sec > 1000000000LL) move(&moved, -offset_ns());
    return real(cond, mutex, &moved);
}
