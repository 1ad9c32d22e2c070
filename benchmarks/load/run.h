/* Shared by the modes of the load generator: the server, the connections, the measured window. */
#ifndef RUN_H
#define RUN_H

#include <stdint.h>
#include <sys/epoll.h>

#include "histogram.h"
#include "links.h"

enum { EVENTS = 256 };

typedef struct {
    const char *host;
    int port, pid; /* the server's; pid 0 leaves its processor time out */
    int connections;
    Link *links;
    int poll_fd;
    Histogram histogram;
    uint64_t operations;
    int64_t warm_ns, begin_ns, end_ns; /* the window: operations that end before begin_ns do not count */
    int64_t server_ns, client_ns;      /* processor time when the window began */
} Run;

void run_open(Run *run);
/* Begins a window of `seconds` after a short warm-up. With 0 seconds the window begins at once and ends
 * when the work is done. */
void run_begin(Run *run, double seconds);
/* Returns whether the run continues; begins the window after the warm-up. */
int run_goes_on(Run *run);
int run_wait(Run *run, struct epoll_event *events, int milliseconds);
/* Prints the line of JSON. Ends the program with an error if there were no operations. */
void run_print(Run *run);

/* A buffer in which requests are encoded word by word. */
typedef struct {
    char *text;
    size_t size;
} Words;

void words_room(Words *words, size_t room);
void words_begin(Words *words, int total);
void words_add(Words *words, const char *data, int size);
void words_list(Words *words, int total, const char **given, int size);

void repeat(Run *run, double seconds, int pipeline, int same);
void times(Run *run, long total, int pipeline);
void fill(Run *run, const char *key, long first, long last, const char **given, int count);
void consume(Run *run, double seconds, int count, const char *way, const char *stream,
             const char *group);
void deliver(Run *run, double seconds, int rate, const char *stream, const char *group);

#endif
