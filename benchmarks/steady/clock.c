/* A clock that advances by the same step each time it is read, for benchmarks/instructions.py.
 *
 * What a command does depends on time: an id begins a new millisecond or not, a timer is due or not. Under
 * valgrind a second of work takes a minute, and on a busy machine two. With this library preloaded, time
 * depends only on what the process does, so that counts are reproducible.
 *
 * cc -shared -fPIC -O2 -o clock.so clock.c; LD_PRELOAD=clock.so program
 */

#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STEP_NS 10000LL
#define SECOND_NS 1000000000LL
#define CLOCKS 16

static _Atomic long long begun[CLOCKS];
static _Atomic long long looks;

static int advances(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME
        || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE
        || clock == CLOCK_MONOTONIC_RAW;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!advances(clock)) return (int)syscall(SYS_clock_gettime, clock, now);
    long long first = begun[clock];
    if (!first) {
        int failed = (int)syscall(SYS_clock_gettime, clock, now);
        if (failed) return failed;
        /* A whole second, so that the start within a second has no effect. */
        begun[clock] = first = (long long)now->tv_sec * SECOND_NS;
    }
    long long time = first + ++looks * STEP_NS;
    now->tv_sec = time / SECOND_NS;
    now->tv_nsec = time % SECOND_NS;
    return 0;
}
