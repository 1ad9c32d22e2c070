# The C version of polling.py.
from cpython cimport array
from cpython.exc cimport PyErr_SetFromErrno
from headwater.native.memory_c cimport u64

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #ifdef __linux__
    #include <sys/epoll.h>
    #define HEADWATER_MOST_EVENTS 256
    static int headwater_wait(int descriptor, int ms, uint64_t *ready, Py_ssize_t most) {
        struct epoll_event found[HEADWATER_MOST_EVENTS];
        int room = most < HEADWATER_MOST_EVENTS ? (int)most : HEADWATER_MOST_EVENTS;
        int count = epoll_wait(descriptor, found, room, ms);
        if (count < 0 && errno == EINTR) return 0; /* asyncio handles the signal */
        for (int at = 0; at < count; at++) {
            ready[2 * at] = (uint64_t)(uint32_t)found[at].data.fd;
            ready[2 * at + 1] = found[at].events;
        }
        return count;
    }
    #else
    static int headwater_wait(int descriptor, int ms, uint64_t *ready, Py_ssize_t most) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    int headwater_wait(int descriptor, int ms, u64 *ready, Py_ssize_t most) noexcept nogil


cdef inline Py_ssize_t wait_ready(
    object poll, int descriptor, double seconds, array.array ready
) except -1:
    cdef int ms = <int>(seconds * 1000 + 0.999), count
    cdef u64 *words = <u64 *>ready.data.as_voidptr
    cdef Py_ssize_t most = len(ready) // 2
    with nogil:
        count = headwater_wait(descriptor, ms, words, most)
    if count < 0:
        PyErr_SetFromErrno(OSError)
    return count
