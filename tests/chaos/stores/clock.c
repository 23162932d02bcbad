// Adds an offset to the clock that Redis reads: a 64-bit number of microseconds in the file REDIS_CLOCK.
// libfaketime cannot be used: Redis's allocator reads the time before libfaketime is initialized, which deadlocks.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void map_offset(void) {
    int file = open(getenv("REDIS_CLOCK"), O_RDONLY);
    void *page = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
}

int gettimeofday(struct timeval *now, void *zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    long long micros = now->tv_sec * 1000000LL + now->tv_usec + (offset ? *offset : 0);
    now->tv_sec = micros / 1000000;
    now->tv_usec = micros % 1000000;
    return result;
}
