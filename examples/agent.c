/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One turn of a conversation, from C. Usage: agent IMAGE
 *
 *      cc agent.c $(pkg-config --cflags --libs cubby) -o agent
 */
#include <cubby/cubby.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char script[] = "echo \"sum: $((19 + 23))\"\n"
                             "echo 'this goes to stderr' >&2\n";

static int fail(const char *what, const cubby_error *err)
{
        (void)fprintf(stderr, "agent: %s: %s\n", what, err->message);
        return EXIT_FAILURE;
}

static int take_turn(cubby_box *box)
{
        cubby_error err = {0};
        if (cubby_file_write(box, "/mnt/user-data/workspace/task.sh", script, strlen(script), NULL,
                    &err) < 0)
                return fail("writing the task", &err);

        const char *argv[] = {"sh", "task.sh", NULL};
        cubby_exec_options options = CUBBY_INIT(cubby_exec_options);
        options.argv = argv;
        options.workdir = "/mnt/user-data/workspace";
        options.timeout_ms = 60000;
        cubby_result result = {0};
        if (cubby_exec_run(box, &options, NULL, 0, &result, &err) < 0)
                return fail("running the task", &err);
        (void)printf("%d %s", result.exit.code, result.output);
        cubby_result_clear(&result);
        return EXIT_SUCCESS;
}

static int converse(cubby *home, const char *image)
{
        char settings[512];
        (void)snprintf(
                settings, sizeof settings, "sandbox:\n  image: %s\n  memory_mib: 256\n", image);
        cubby_provider_options options = CUBBY_INIT(cubby_provider_options);
        options.config_text = settings;
        cubby_provider *provider = NULL;
        cubby_error err = {0};
        if (cubby_provider_open(home, &options, &provider, &err) < 0)
                return fail("opening the provider", &err);

        cubby_acquire_options who = CUBBY_INIT(cubby_acquire_options);
        who.user = "alice";
        who.user_size = strlen("alice");
        who.thread = "thread-1";
        who.thread_size = strlen("thread-1");
        cubby_acquired turn;
        int result = EXIT_FAILURE;
        if (cubby_provider_acquire(provider, &who, &turn, &err) < 0) {
                (void)fail("getting the box", &err);
        } else {
                (void)printf("box %s: %s\n", turn.id, cubby_served_name(turn.served));
                result = take_turn(turn.box);
                cubby_box_close(turn.box);
                (void)cubby_provider_release(provider, turn.id, NULL); /* it waits, warm */
        }
        (void)cubby_provider_shutdown(provider, 30000, NULL, NULL);
        cubby_provider_close(provider);
        return result;
}

int main(int argc, char **argv)
{
        cubby *home = NULL;
        cubby_error err = {0};
        if (argc != 2) {
                (void)fprintf(stderr, "usage: agent IMAGE\n");
                return EXIT_FAILURE;
        }
        if (cubby_open(NULL, &home, &err) < 0)
                return fail("opening the home", &err);
        int result = converse(home, argv[1]);
        cubby_close(home);
        return result;
}
