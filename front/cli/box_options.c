/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

/* The options of a new box, and those of Docker's that are refused with advice. */

#define AT(field) offsetof(struct box_settings, field)

const struct option box_options[] = {

        {0, "accel", OPTION_TEXT, AT(accel), "KIND",
                "auto (default), kvm (insist on hardware) or tcg (emulate)", 0, 0},
        {0, "boot-timeout", OPTION_DURATION, AT(boot_timeout), "DURATION",
                "how long the boot may take (default 60s)", 1000, 3600000},
        {0, "cpus", OPTION_CPUS, AT(cpus), "NUMBER",
                "CPUs of the box, such as 2 or 1.5 (default 1)", 10, 64000},
        {0, "disk", OPTION_SIZE, AT(disk), "SIZE",
                "writable disk, filled as it is used (default 8G)", 64U << 20, UINT64_C(1) << 44},
        {0, "engine", OPTION_TEXT, AT(engine), "NAME", "microvm (default)", 0, 0},
        {0, "entrypoint", OPTION_TEXT, AT(entrypoint), "PROGRAM",
                "instead of the image's entrypoint; empty for none", 0, 0},
        {'e', "env", OPTION_LIST, AT(env), "NAME[=VALUE]",
                "set a variable; without a value, pass yours on", 0, 0},
        {0, "env-file", OPTION_LIST, AT(env_files), "FILE",
                "read variables from a file, one a line", 0, 0},
        {'h', "hostname", OPTION_TEXT, AT(hostname), "NAME",
                "the box's name for itself (default: start of its id)", 0, 0},
        {0, "idle", OPTION_FLAG, AT(idle), NULL,
                "run no command: the box waits for 'cubby exec' until it is stopped", 0, 0},
        {'i', "interactive", OPTION_FLAG, AT(input), NULL, "pass standard input to the command", 0,
                0},
        {0, "kernel", OPTION_TEXT, AT(kernel), "FILE", "guest kernel: a file or a version", 0, 0},
        {'l', "label", OPTION_LIST, AT(labels), "NAME[=VALUE]",
                "attach a label, for 'cubby ps --filter'", 0, 0},
        {'m', "memory", OPTION_SIZE, AT(memory), "SIZE", "memory of the box (default 512M)",
                64U << 20, UINT64_C(1) << 42},
        {0, "name", OPTION_TEXT, AT(name), "NAME", "name of the box (default: made up)", 0, 0},
        {0, "network", OPTION_TEXT, AT(network), "none",
                "boxes have no network; 'none' is accepted", 0, 0},
        {0, "no-template", OPTION_FLAG, AT(no_template), NULL,
                "boot the machine, though a saved one could be continued", 0, 0},
        {0, "pids-limit", OPTION_NUMBER, AT(pids), "COUNT",
                "most processes in the box (default 4096)", 1, 1000000},
        {0, "rm", OPTION_FLAG, AT(remove), NULL, "remove the box when it ends", 0, 0},
        {0, "stop-signal", OPTION_TEXT, AT(stop_signal), "SIGNAL",
                "signal that 'cubby stop' sends (default: the image's, else TERM)", 0, 0},
        {'t', "tty", OPTION_FLAG, AT(tty), NULL, "give the command a terminal", 0, 0},
        {0, "ttl", OPTION_DURATION, AT(ttl), "DURATION", "end the box this long after its start", 1,
                UINT64_C(31536000000)},
        {'u', "user", OPTION_TEXT, AT(user), "USER[:GROUP]",
                "run the command as this user, by name or number", 0, 0},
        {'w', "workdir", OPTION_TEXT, AT(workdir), "DIR",
                "run the command in this folder of the box", 0, 0},
        {0, NULL, OPTION_END, 0, NULL, NULL, 0, 0},
};

#define REFUSED(letter, name, advice)                               \
        {                                                           \
                letter, name, OPTION_REFUSED, 0, NULL, advice, 0, 0 \
        }
#define ADVICE_FILES                                                        \
        "a box shares no folder with the host; copy files through a pipe: " \
        "cubby exec -i BOX tar -x -C DIR <files.tar"
#define ADVICE_NETWORK "boxes have no network; talk to a program in the box through 'cubby exec -i'"
#define ADVICE_KERNEL "a box has a kernel of its own; run the command as root in it with '-u root'"
#define ADVICE_RESTART "nothing restarts a box by itself; use 'cubby restart BOX'"
#define ADVICE_LOGS "the output of the command is always kept; read it with 'cubby logs BOX'"
#define ADVICE_LIMIT "give the box its size with --memory, --cpus, --disk and --pids-limit"
#define ADVICE_IMAGE "bring images in with 'cubby image import FILE'"
#define ADVICE_INSPECT "read the id from standard output or with 'cubby inspect'"

const struct option box_options_refused[] = {
        REFUSED('v', "volume", ADVICE_FILES),
        REFUSED(0, "mount", ADVICE_FILES),
        REFUSED(0, "volumes-from", ADVICE_FILES),
        REFUSED(0, "volume-driver", ADVICE_FILES),
        REFUSED(0, "tmpfs", "/tmp and every other folder of a box are already private"),
        REFUSED(0, "read-only", "the image is never changed; remove the box with --rm"),
        REFUSED('p', "publish", ADVICE_NETWORK),
        REFUSED('P', "publish-all", ADVICE_NETWORK),
        REFUSED(0, "expose", ADVICE_NETWORK),
        REFUSED(0, "link", ADVICE_NETWORK),
        REFUSED(0, "net", "say --network none; boxes have no network"),
        REFUSED(0, "network-alias", ADVICE_NETWORK),
        REFUSED(0, "dns", ADVICE_NETWORK),
        REFUSED(0, "dns-search", ADVICE_NETWORK),
        REFUSED(0, "dns-option", ADVICE_NETWORK),
        REFUSED(0, "add-host", ADVICE_NETWORK),
        REFUSED(0, "ip", ADVICE_NETWORK),
        REFUSED(0, "ip6", ADVICE_NETWORK),
        REFUSED(0, "mac-address", ADVICE_NETWORK),
        REFUSED(0, "privileged", ADVICE_KERNEL),
        REFUSED(0, "cap-add", ADVICE_KERNEL),
        REFUSED(0, "cap-drop", "run the command as an ordinary user with --user"),
        REFUSED(0, "security-opt", ADVICE_KERNEL),
        REFUSED(0, "sysctl", ADVICE_KERNEL),
        REFUSED(0, "userns", ADVICE_KERNEL),
        REFUSED(0, "ipc", ADVICE_KERNEL),
        REFUSED(0, "pid", ADVICE_KERNEL),
        REFUSED(0, "uts", ADVICE_KERNEL),
        REFUSED(0, "cgroupns", ADVICE_KERNEL),
        REFUSED(0, "cgroup-parent", ADVICE_LIMIT),
        REFUSED(0, "gpus", "a box has no devices of the host"),
        REFUSED(0, "device", "a box has no devices of the host"),
        REFUSED(0, "runtime", "choose with --engine"),
        REFUSED(0, "isolation", "choose with --engine"),
        REFUSED(0, "restart", ADVICE_RESTART),
        REFUSED(0, "init", "every box has an init that reaps; leave it out"),
        REFUSED(0, "memory-swap", ADVICE_LIMIT),
        REFUSED(0, "memory-reservation", ADVICE_LIMIT),
        REFUSED(0, "memory-swappiness", ADVICE_LIMIT),
        REFUSED(0, "kernel-memory", ADVICE_LIMIT),
        REFUSED('c', "cpu-shares", ADVICE_LIMIT),
        REFUSED(0, "cpu-quota", ADVICE_LIMIT),
        REFUSED(0, "cpu-period", ADVICE_LIMIT),
        REFUSED(0, "cpuset-cpus", ADVICE_LIMIT),
        REFUSED(0, "cpuset-mems", ADVICE_LIMIT),
        REFUSED(0, "ulimit", ADVICE_LIMIT),
        REFUSED(0, "shm-size", ADVICE_LIMIT),
        REFUSED(0, "blkio-weight", ADVICE_LIMIT),
        REFUSED(0, "oom-kill-disable", ADVICE_LIMIT),
        REFUSED(0, "oom-score-adj", ADVICE_LIMIT),
        REFUSED(0, "storage-opt", "give the disk's size with --disk"),
        REFUSED(0, "label-file", "give each label with --label NAME=VALUE"),
        REFUSED(0, "annotation", "attach a label with --label NAME=VALUE"),
        REFUSED(0, "group-add", "give the group with --user USER:GROUP"),
        REFUSED(0, "cidfile", ADVICE_INSPECT),
        REFUSED(0, "log-driver", ADVICE_LOGS),
        REFUSED(0, "log-opt", ADVICE_LOGS),
        REFUSED(0, "health-cmd", "check with 'cubby exec BOX COMMAND'"),
        REFUSED(0, "no-healthcheck", "there are no health checks; leave it out"),
        REFUSED('a', "attach", "use -i for input; output always comes"),
        REFUSED(0, "detach-keys", "leave with ctrl-p ctrl-q"),
        REFUSED(0, "sig-proxy", "signals always go to the command; leave it out"),
        REFUSED(0, "stop-timeout", "give it to 'cubby stop -t'"),
        REFUSED(0, "pull", ADVICE_IMAGE),
        REFUSED('q', "quiet", "output is quiet already"),
        REFUSED(0, "platform", "give it to 'cubby image import --platform'"),
        REFUSED(0, "disable-content-trust", ADVICE_IMAGE),
        REFUSED(0, "domainname", "give the whole name with --hostname"),
        {0, NULL, OPTION_END, 0, NULL, NULL, 0, 0},
};
