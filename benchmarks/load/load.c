/* A light client for benchmarks, with one thread and one epoll. It does little work compared with a
 * server, so that the server is measured and not the client.
 *
 *   load repeat  HOST PORT PID SECONDS CONNECTIONS PIPELINE < requests
 *       sends batches of PIPELINE of the given requests, in turn, each after the replies to the last one
 *   load same    HOST PORT PID SECONDS CONNECTIONS 1 < requests
 *       the same, for reads whose replies do not change: each is parsed completely only once
 *   load times   HOST PORT PID TOTAL CONNECTIONS PIPELINE < requests
 *       sends TOTAL of the given requests, in turn; times are those of a batch
 *   load fill    HOST PORT PID KEY FIRST LAST WORD…
 *       adds entries with the ids FIRST-1 to LAST-1; each # in the words becomes a random digit
 *   load consume HOST PORT PID SECONDS CONNECTIONS COUNT ack|settle|claim STREAM GROUP
 *       reads COUNT new entries and acknowledges them; operations are entries
 *   load deliver HOST PORT PID SECONDS CONNECTIONS RATE STREAM GROUP
 *       adds RATE entries per second and measures the time until a blocked consumer has each
 *   load read    PIECE < replies
 *       parses replies in pieces of PIECE bytes and prints what they are, for tests of the parser
 *
 * Prints one line of JSON: operations, seconds, p50, p99 and p99.9 of the reply times, processor time of
 * the server (process PID) and of this program. Any error, in particular an error reply, ends it with
 * status 1 and a line on standard error.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

enum { MOST_READ = 1 << 20 };

static void read_replies(size_t piece) {
    static char data[MOST_READ];
    size_t size = 0, at = 0, seen = 0, begin = 0;
    ssize_t got;
    Reply reply = {0};
    Id ids[16];
    int replies = 0, found = 0;
    long sum = 0;
    while (size < MOST_READ && (got = read(0, data + size, MOST_READ - size)) > 0) size += got;
    while (seen < size && !reply.broken) {
        seen = size - seen < piece ? size : seen + piece;
        while (reply_next(&reply, data, seen, &at)) {
            replies++;
            if (!reply.errors) {
                sum = reply_sum(data + begin, at - begin);
                found = reply_ids(data + begin, at - begin, ids, 16);
            }
            begin = at;
        }
    }
    printf("{\"replies\": %d, \"errors\": %d, \"broken\": %d, \"unfinished\": %d, \"sum\": %ld, "
           "\"ids\": [",
           replies, reply.errors, reply.broken, reply.values || reply.skip || reply.kind, sum);
    for (int n = 0; n < found; n++)
        printf("%s\"%.*s\"", n ? ", " : "", ids[n].length, ids[n].text);
    printf("]}\n");
}

static int is(const char *mode, const char *name, int words, int least, int most) {
    return !strcmp(mode, name) && words >= least && words <= most;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (is(mode, "read", argc, 3, 3)) {
        read_replies(strtoul(argv[2], NULL, 10));
        return 0;
    }
    if (argc < 7) fail("load repeat|same|times|fill|consume|deliver HOST PORT PID …");
    static Run run;
    run.host = argv[2];
    run.port = atoi(argv[3]);
    run.pid = atoi(argv[4]);
    run.connections = atoi(argv[6]);
    double seconds = atof(argv[5]);
    if (is(mode, "repeat", argc, 8, 8)) repeat(&run, seconds, atoi(argv[7]), 0);
    else if (is(mode, "same", argc, 8, 8)) repeat(&run, seconds, atoi(argv[7]), 1);
    else if (is(mode, "times", argc, 8, 8)) times(&run, atol(argv[5]), atoi(argv[7]));
    else if (is(mode, "fill", argc, 10, 1000))
        fill(&run, argv[5], atol(argv[6]), atol(argv[7]), (const char **)argv + 8, argc - 8);
    else if (is(mode, "consume", argc, 11, 11))
        consume(&run, seconds, atoi(argv[7]), argv[8], argv[9], argv[10]);
    else if (is(mode, "deliver", argc, 10, 10))
        deliver(&run, seconds, atoi(argv[7]), argv[8], argv[9]);
    else {
        errno = 0;
        fail("unknown mode or a wrong number of arguments");
    }
    run_print(&run);
    return 0;
}
