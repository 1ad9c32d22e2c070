/* Lets every fsync wait while the file exists that HANGING_DISK names. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_while_hanging(void) {
    const char *mark = getenv("HANGING_DISK");
    while (mark && access(mark, F_OK) == 0) usleep(20000);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int file) { wait_while_hanging(); return REAL(fsync)(file); }
int fdatasync(int file) { wait_while_hanging(); return REAL(fdatasync)(file); }
