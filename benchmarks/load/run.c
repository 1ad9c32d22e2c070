#define _GNU_SOURCE

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

void run_open(Run *run) {
    run->links = calloc(run->connections, sizeof *run->links);
    run->poll_fd = epoll_create1(0);
    for (int at = 0; at < run->connections; at++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.u32 = at};
        link_open(&run->links[at], run->host, run->port);
        epoll_ctl(run->poll_fd, EPOLL_CTL_ADD, run->links[at].fd, &wanted);
    }
}

static void count_from_here(Run *run) {
    memset(&run->histogram, 0, sizeof run->histogram);
    run->operations = 0;
    run->begin_ns = now_ns();
    run->server_ns = process_ns(run->pid);
    run->client_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    if (run->server_ns < 0) fail("no such server process");
}

void run_begin(Run *run, double seconds) {
    double warm = seconds / 10 < 0.2 ? seconds / 10 : 0.2;
    int64_t begin = now_ns() + (int64_t)(warm * 1e9);
    count_from_here(run);
    run->warm_ns = warm > 0 ? begin : 0;
    run->end_ns = seconds > 0 ? begin + (int64_t)(seconds * 1e9) : 0;
}

int run_goes_on(Run *run) {
    int64_t now = now_ns();
    if (run->warm_ns && now >= run->warm_ns) {
        run->warm_ns = 0;
        count_from_here(run);
    }
    return now < run->end_ns;
}

int run_wait(Run *run, struct epoll_event *events, int milliseconds) {
    int ready = epoll_wait(run->poll_fd, events, EVENTS, milliseconds);
    if (ready < 0 && errno != EINTR) fail("epoll_wait");
    return ready < 0 ? 0 : ready;
}

void run_print(Run *run) {
    int64_t end = now_ns();
    /* The kernel updates a process's clock when the process sleeps, or at the next tick. A server that has
     * replied to all requests will sleep in a moment. */
    if (!run->end_ns) usleep(5000);
    int64_t server = process_ns(run->pid) - run->server_ns;
    int64_t client = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - run->client_ns;
    errno = 0;
    if (!run->operations) fail("no reply arrived");
    printf("{\"operations\": %llu, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"server_cpu_seconds\": %.6f, \"client_cpu_seconds\": %.6f}\n",
           (unsigned long long)run->operations, (end - run->begin_ns) / 1e9,
           histogram_at(&run->histogram, 0.5), histogram_at(&run->histogram, 0.99),
           histogram_at(&run->histogram, 0.999), server / 1e9, client / 1e9);
}

void words_room(Words *words, size_t room) {
    words->text = malloc(room);
    words->size = 0;
}

static void line(Words *words, char mark, unsigned number) {
    char digits[12];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    words->text[words->size++] = mark;
    while (count) words->text[words->size++] = digits[--count];
    words->text[words->size++] = '\r';
    words->text[words->size++] = '\n';
}

void words_begin(Words *words, int total) { line(words, '*', total); }

void words_add(Words *words, const char *data, int size) {
    line(words, '$', size);
    memcpy(words->text + words->size, data, size);
    words->size += size;
    words->text[words->size++] = '\r';
    words->text[words->size++] = '\n';
}

void words_list(Words *words, int total, const char **given, int size) {
    words->size = 0;
    words_begin(words, total);
    for (int at = 0; at < size; at++) words_add(words, given[at], (int)strlen(given[at]));
}
