cdef extern from *:
    """
    #include <time.h>
    static inline long long headwater_ns(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    #define headwater_wall_ns() headwater_ns(CLOCK_REALTIME)
    #define headwater_passed_ns() headwater_ns(CLOCK_MONOTONIC)
    #define headwater_passed_seconds() (headwater_ns(CLOCK_MONOTONIC) * 1e-9)
    """
    long long wall_ns "headwater_wall_ns"() noexcept
    long long passed_ns "headwater_passed_ns"() noexcept
    double passed_seconds "headwater_passed_seconds"() noexcept


cdef class SystemClock:
    cpdef long long now_ms(self) except? -1
    cpdef double monotonic(self) except? -1
