/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What calls on a box cost from C, for python_calls.py to stand beside.
 *
 *      bench_calls BOX RUNS
 *
 * BOX runs in $CUBBY_HOME. Prints a line "NAME MICROSECONDS" with the median of each.
 */
#include <cubby/cubby.h>
#include <stdio.h>
#include <stdlib.h>
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

static int ping(cubby_box *box, cubby_error *err)
{
        return cubby_box_ping(box, 10000, err);
}

static int info(cubby_box *box, cubby_error *err)
{
        cubby_box_info info;
        if (cubby_box_get_info(box, &info, err) < 0)
                return -1;
        cubby_box_info_clear(&info);
        return 0;
}

static int run(cubby_box *box, cubby_error *err)
{
        const char *argv[] = {"true", NULL};
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = argv;
        cubby_result result;
        if (cubby_exec_run(box, &options, NULL, 0, &result, err) < 0)
                return -1;
        cubby_result_clear(&result);
        return 0;
}

static int measure(cubby_box *box, const char *name, int (*call)(cubby_box *, cubby_error *),
        int runs, cubby_error *err)
{
        for (int i = -runs / 10; i < runs; i++) {
                double start = now_us();
                if (call(box, err) < 0)
                        return -1;
                if (i >= 0)
                        samples[i] = now_us() - start;
        }
        qsort(samples, (size_t)runs, sizeof samples[0], by_size);
        (void)printf("%s %.1f\n", name, samples[runs / 2]);
        return 0;
}

int main(int argc, char **argv)
{
        cubby *home = NULL;
        cubby_box *box = NULL;
        cubby_error err = {0};
        int runs = argc == 3 ? atoi(argv[2]) : 0;
        if (runs < 1 || runs > RUNS_MAX) {
                (void)fprintf(stderr, "usage: bench_calls BOX RUNS\n");
                return 2;
        }
        int result = cubby_open(NULL, &home, &err);
        if (result == 0)
                result = cubby_box_open(home, argv[1], &box, &err);
        if (result == 0)
                result = measure(box, "ping", ping, runs, &err);
        if (result == 0)
                result = measure(box, "info", info, runs, &err);
        if (result == 0)
                result = measure(box, "run", run, runs, &err);
        if (result < 0)
                (void)fprintf(stderr, "bench_calls: %s\n", err.message);
        cubby_box_close(box);
        cubby_close(home);
        return result < 0;
}
