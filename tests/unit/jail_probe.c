/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in the VMM's place inside its jail and prints what it can reach, one
 * "NAME VALUE" per line; VALUE is an errno, or a count. Arguments: a file of the
 * home, a pid of the host, a TCP port that listens on the host's loopback, the
 * name of an abstract socket that listens there, a descriptor to open again.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void say(const char *name, long value)
{
        (void)printf("%s %ld\n", name, value);
}

static void try_open(const char *name, const char *path, int flags)
{
        int fd = open(path, flags | O_CLOEXEC, 0600);
        say(name, fd < 0 ? errno : 0);
        if (fd >= 0)
                (void)close(fd);
}

/* Processes under /proc that are not this one. */
static long others(void)
{
        DIR *dir = opendir("/proc");
        if (dir == NULL)
                return 0;
        long count = 0;
        const struct dirent *entry;
        while ((entry = readdir(dir)) != NULL)
                if (isdigit((unsigned char)entry->d_name[0]) &&
                        strtol(entry->d_name, NULL, 10) != (long)getpid())
                        count++;
        (void)closedir(dir);
        return count;
}

static long connect_tcp(uint16_t port)
{
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return errno;
        struct sockaddr_in address = {.sin_family = AF_INET,
                .sin_port = htons(port),
                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? errno : 0;
}

static long connect_abstract(const char *name)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return errno;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t length = strlen(name);
        memcpy(address.sun_path + 1, name, length);
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
        return connect(fd, (struct sockaddr *)&address, size) < 0 ? errno : 0;
}

/* Capabilities held now, and those that could ever be gained. */
static long permitted(void)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
        if (syscall(SYS_capget, &header, data) < 0)
                return -1;
        return (long)(data[0].permitted | data[1].permitted | data[0].inheritable);
}

static long bounding(void)
{
        long count = 0;
        for (int capability = 0; capability < 64; capability++)
                if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
                        count++;
        return count;
}

int main(int argc, char **argv)
{
        if (argc != 6)
                return 2;
        try_open("passwd", "/etc/passwd", O_RDONLY);
        try_open("home", argv[1], O_RDONLY);
        try_open("create-root", "/new", O_WRONLY | O_CREAT);
        try_open("create-tmp", "/tmp/new", O_WRONLY | O_CREAT);
        try_open("create-lib", "/usr/lib/new", O_WRONLY | O_CREAT);
        try_open("mem", "/dev/mem", O_RDONLY);
        try_open("kvm", "/dev/kvm", O_RDWR);
        try_open("init-environ", "/proc/1/environ", O_RDONLY);
        try_open("sysctl", "/proc/sys/kernel/core_pattern", O_WRONLY);
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%s", argv[5]);
        try_open("reopen", path, O_RDONLY);
        try_open("reopen-write", path, O_RDWR);
        say("others", others());
        pid_t host_pid = (pid_t)strtol(argv[2], NULL, 10);
        say("signal", kill(host_pid, 0) < 0 ? errno : 0);
        say("ptrace", ptrace(PTRACE_ATTACH, host_pid, NULL, NULL) < 0 ? errno : 0);
        say("tcp", connect_tcp((uint16_t)strtol(argv[3], NULL, 10)));
        say("abstract", connect_abstract(argv[4]));
        say("mount", mount("tmpfs", "/proc", "tmpfs", 0, NULL) < 0 ? errno : 0);
        say("setuid", setuid(0) < 0 ? errno : 0);
        say("setgroups", setgroups(0, NULL) < 0 ? errno : 0);
        say("caps-permitted", permitted());
        say("caps-bounding", bounding());
        say("no-new-privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
        struct rlimit limit;
        say("core", getrlimit(RLIMIT_CORE, &limit) < 0 ? -1 : (long)limit.rlim_max);
        say("nofile", getrlimit(RLIMIT_NOFILE, &limit) < 0 ? -1 : (long)limit.rlim_max);
        say("fsize", getrlimit(RLIMIT_FSIZE, &limit) < 0 ? -1 : (long)limit.rlim_max);
        say("uid", (long)getuid());
        say("ppid", (long)getppid());
        char shell[] = "/bin/sh";
        char *const shell_argv[] = {shell, NULL};
        (void)execv(shell, shell_argv);
        say("exec", errno);
        return fflush(stdout) == 0 ? 0 : 1;
}
