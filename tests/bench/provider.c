/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a provider costs: release, reclaim without and with a check, new boxes.
 *
 *      bench_provider CONFIG [RUNS]
 *
 * CONFIG is a provider's YAML; $CUBBY_HOME has its image. Over cubby.h only.
 */
#include <cubby/cubby.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS_MAX 100000

static double samples[RUNS_MAX];

static double now_us(void)
{
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int by_size(const void *left, const void *right)
{
        double a = *(const double *)left;
        double b = *(const double *)right;
        return (a > b) - (a < b);
}

static void print(const char *what, int count)
{
        qsort(samples, (size_t)count, sizeof samples[0], by_size);
        (void)printf("%-44s p50 %9.1f us   p99 %9.1f us   n %d\n", what, samples[count / 2],
                samples[(int)((double)count * 0.99)], count);
        (void)fflush(stdout);
}

static void need(int result, const cubby_error *err)
{
        if (result == 0)
                return;
        (void)fprintf(stderr, "bench_provider: %s\n", err->message);
        exit(1);
}

static cubby_provider *provider;

static int acquire(const char *thread, char ret_id[17])
{
        cubby_acquire_options options = CUBBY_INIT(cubby_acquire_options);
        cubby_acquired acquired = {0};
        cubby_error err = {0};
        options.user = "bench";
        options.user_size = 5;
        options.thread = thread;
        options.thread_size = strlen(thread);
        need(cubby_provider_acquire(provider, &options, &acquired, &err), &err);
        memcpy(ret_id, acquired.id, 17);
        cubby_box_close(acquired.box);
        return acquired.served;
}

static void measure_turns(const char *what, int runs, bool releases)
{
        char id[17];
        (void)acquire("turns", id);
        for (int i = 0; i < runs; i++) {
                double begun = now_us();
                (void)cubby_provider_release(provider, id, NULL);
                double released = now_us();
                (void)acquire("turns", id);
                samples[i] = releases ? released - begun : now_us() - released;
        }
        print(what, runs);
}

static void measure_ping(const char *what, int runs)
{
        char id[17];
        cubby_box *box = NULL;
        cubby_error err = {0};
        (void)acquire("turns", id);
        need(cubby_provider_get(provider, id, &box, &err), &err);
        for (int i = 0; i < runs; i++) {
                double begun = now_us();
                need(cubby_box_ping(box, 5000, &err), &err);
                samples[i] = now_us() - begun;
        }
        cubby_box_close(box);
        print(what, runs);
}

static void measure_new(int runs)
{
        static const char *const names[] = {"", "", "", "spare", "cloned", "booted"};
        double by_kind[6][64];
        int counts[6] = {0};
        for (int i = 0; i < runs && i < 64; i++) {
                char thread[16];
                char id[17];
                (void)snprintf(thread, sizeof thread, "new%d", i);
                struct timespec pause = {.tv_sec = 1};
                (void)nanosleep(&pause, NULL); /* a conversation does not begin every moment */
                double begun = now_us();
                int served = acquire(thread, id);
                by_kind[served][counts[served]++] = now_us() - begun;
                (void)cubby_provider_release(provider, id, NULL);
        }
        for (int kind = CUBBY_SERVED_SPARE; kind <= CUBBY_SERVED_BOOTED; kind++) {
                char what[64];
                (void)snprintf(what, sizeof what, "acquire, new conversation, %s", names[kind]);
                memcpy(samples, by_kind[kind], sizeof(double) * (size_t)counts[kind]);
                if (counts[kind] > 0)
                        print(what, counts[kind]);
        }
}

int main(int argc, char **argv)
{
        cubby_open_options open = CUBBY_INIT(cubby_open_options);
        cubby_provider_options options = CUBBY_INIT(cubby_provider_options);
        cubby_error err = {0};
        cubby *host = NULL;
        int runs = argc > 2 ? atoi(argv[2]) : 500;
        if (argc < 2 || runs < 1 || runs > RUNS_MAX) {
                (void)fprintf(stderr, "usage: bench_provider CONFIG [RUNS]\n");
                return 2;
        }
        options.config_file = argv[1];
        need(cubby_open(&open, &host, &err), &err);
        need(cubby_provider_open(host, &options, &provider, &err), &err);
        measure_turns("release", runs, true);
        measure_turns("reclaim", runs, false);
        measure_ping("ping on a connection of its own", runs);
        cubby_provider_status status = {0};
        need(cubby_provider_get_status(provider, &status, &err), &err);
        if (status.check.count > 0)
                (void)printf("%-44s mean %8.1f us   n %llu\n", "  of it the round trip (check)",
                        (double)status.check.total_us / (double)status.check.count,
                        (unsigned long long)status.check.count);
        measure_new(12);
        (void)cubby_provider_shutdown(provider, 30000, NULL, NULL);
        cubby_provider_close(provider);
        cubby_close(host);
        return 0;
}
