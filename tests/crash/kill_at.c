/* Kills the process before its Nth system call that matters for durability: writes, fsyncs, changes of names, and
 * what is sent to clients. Loaded with LD_PRELOAD; `kill_at_arm` starts counting. A helper process of checkpoints
 * counts from its start if HEADWATER_KILL_HELPER_AT is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static long left = 0;

void kill_at_arm(long calls) { __atomic_store_n(&left, calls, __ATOMIC_SEQ_CST); }

static void count(void) {
    if (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0 && __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) == 0)
        kill(getpid(), SIGKILL);
}

__attribute__((constructor)) static void begin(void) {
    char text[4096];
    const char *at = getenv("HEADWATER_KILL_HELPER_AT");
    int file = open("/proc/self/cmdline", O_RDONLY);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (at && size > 0 && memmem(text, (size_t)size, "persistence.helper", 18)) kill_at_arm(atol(at));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { count(); return REAL(pwrite64)(file, data, size, at); }
int fsync(int file) { count(); return REAL(fsync)(file); }
int fdatasync(int file) { count(); return REAL(fdatasync)(file); }
int rename(const char *old, const char *new) { count(); return REAL(rename)(old, new); }
int unlink(const char *name) { count(); return REAL(unlink)(name); }
int ftruncate64(int file, off64_t size) { count(); return REAL(ftruncate64)(file, size); }
int posix_fallocate64(int file, off64_t at, off64_t size) { count(); return REAL(posix_fallocate64)(file, at, size); }
ssize_t send(int file, const void *data, size_t size, int flags) { count(); return REAL(send)(file, data, size, flags); }
