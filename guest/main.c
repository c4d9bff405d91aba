/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"
#include "boot.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static int send_hello(struct agent *agent, cubby_error *err)
{
        struct utsname names;
        AUTO_BUFFER struct buffer payload = {.maximum = 4096};
        if (uname(&names) < 0)
                return cubby_error_errno(err, errno, "asking for the kernel's release");
        const struct message_hello hello = {
                .version = WIRE_VERSION,
                .agent_version = {(const uint8_t *)AGENT_VERSION, strlen(AGENT_VERSION)},
                .kernel_release = {(const uint8_t *)names.release, strlen(names.release)},
        };
        if (!message_hello_encode(&payload, &hello) ||
                !port_send(&agent->port, FRAME_HELLO, 0, 0, payload.data, payload.size))
                return cubby_error_no_memory(err);
        return 0;
}

static int begin_cgroups(struct agent *agent, cubby_error *err)
{
        return cgroups_begin(&agent->cgroups, err);
}

static int open_port(struct agent *agent, cubby_error *err)
{
        int fd = boot_port(err);
        if (fd < 0)
                return -1;
        port_init(&agent->port, fd);
        return 0;
}

/* To the host too, once there is a port: a machine may have no console. */
static _Noreturn void fail(struct agent *agent, const char *stage, const cubby_error *error)
{
        cubby_error told = *error;
        (void)cubby_error_wrap(&told, "stage '%s'", stage);
        if (agent->port.fd > 0) {
                send_error(&agent->port, 0, &told);
                (void)port_fill(&agent->port);
                port_flush(&agent->port);
        }
        fatal(&agent->console, stage, error);
}

int main(void)
{
        if (getpid() != 1) {
                (void)fputs("cubby-agent is the first process of a box and runs nowhere else\n",
                        stderr);
                return EXIT_FAILURE;
        }
        static const struct {
                const char *name;
                int (*run)(cubby_error *err);
                int (*run_with)(struct agent *agent, cubby_error *err);
        } stages[] = {
                {"modules", boot_modules, NULL},
                {"limits", boot_limits, NULL},
                {"port", NULL, open_port},
                {"root disks", boot_root_disks, NULL},
                {"loopback", boot_loopback, NULL},
                {"hardening", boot_hardening, NULL},
                {"cgroups", NULL, begin_cgroups},
                {"workload", NULL, threads_start},
                {"hello", NULL, send_hello},
        };
        cubby_error error = {0};
        struct console nowhere = {.fd = -1};
        struct agent *agent = calloc(1, sizeof *agent);
        if (agent == NULL)
                fatal(&nowhere, "memory", &error);
        int result = boot_file_systems(&error);
        console_open(&agent->console);
        if (result < 0)
                fail(agent, "file systems", &error);
        for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
                result = stages[i].run != NULL ? stages[i].run(&error)
                                               : stages[i].run_with(agent, &error);
                if (result < 0)
                        fail(agent, stages[i].name, &error);
        }
        loop_run(agent);
}
