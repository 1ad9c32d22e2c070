/* A histogram of times with 64 buckets per power of two: the error is at most 1.6 % of a time. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>
#include <time.h>

enum { STEPS = 64, BUCKETS = 64 * 40 };

typedef struct {
    uint64_t count[BUCKETS];
    uint64_t total;
} Histogram;

static inline int64_t clock_ns(clockid_t clock) {
    struct timespec at;
    if (clock_gettime(clock, &at)) return -1;
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static inline int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* Returns the processor time of another process, of all its threads, including ended ones; -1 if there
 * is no such process. On Linux the clock's id is derived from the pid (clock_getcpuclockid(3)). */
static inline int64_t process_ns(int pid) { return pid ? clock_ns(((~(clockid_t)pid) << 3) | 2) : 0; }

static inline void histogram_add(Histogram *histogram, int64_t ns, uint64_t times) {
    uint64_t value = ns < 0 ? 0 : (uint64_t)ns;
    int bucket = (int)value;
    if (value >= STEPS) {
        int shift = 57 - __builtin_clzll(value); /* keeps the seven highest bits */
        bucket = (shift + 1) * STEPS + (int)(value >> shift) - STEPS;
        if (bucket >= BUCKETS) bucket = BUCKETS - 1;
    }
    histogram->count[bucket] += times;
    histogram->total += times;
}

/* Returns the microseconds that a fraction `share` of all times did not exceed. */
static inline double histogram_at(const Histogram *histogram, double share) {
    uint64_t wanted = (uint64_t)(share * histogram->total), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram->count[bucket];
        if (seen <= wanted) continue;
        if (bucket < STEPS) return bucket / 1e3;
        int shift = bucket / STEPS - 1;
        return ((uint64_t)(bucket % STEPS + STEPS) << shift) / 1e3;
    }
    return 0;
}

#endif
