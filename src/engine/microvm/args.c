/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/args.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "wire/wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ARGS_MAX 96U
#define COMMAND_LINE_MAX 2048U /* x86 kernels take no more */
#define MIB (1024ULL * 1024)

/* 250 ticks a second at lpj * 250 delay loops: one loop is one count of the TSC. */
#define LOOPS_PER_JIFFY_OF_KHZ 4U

static bool add(struct args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool add(struct args *args, const char *format, ...)
{
        char *text = NULL;
        va_list list;
        va_start(list, format);
        int length = vasprintf(&text, format, list);
        va_end(list);
        if (length < 0)
                return false;
        if (args->count + 1 >= ARGS_MAX) {
                free(text);
                return false;
        }
        args->list[args->count++] = text;
        return true;
}

void args_free(struct args *args)
{
        for (unsigned i = 0; i < args->count; i++)
                free(args->list[i]);
        free(args->list);
        *args = (struct args){0};
}

int vmm_spec_check(const struct vmm_spec *spec, cubby_error *err)
{
        if (spec->memory_bytes < VMM_MEMORY_MIN || spec->memory_bytes > VMM_MEMORY_MAX ||
                spec->memory_bytes % MIB != 0)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "a machine has from 64 MiB to 1 TiB of memory in whole MiB, not %llu bytes",
                        (unsigned long long)spec->memory_bytes);
        if (spec->vcpus < 1 || spec->vcpus > VMM_VCPUS_MAX)
                return cubby_error_set(err, CUBBY_E_INVALID,
                        "a machine has from 1 to %u processors, not %u", VMM_VCPUS_MAX,
                        spec->vcpus);
        if (!spec->kvm && spec->tsc_khz == 0 && spec->origin != MACHINE_CLONE)
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "the host's time stamp counter could not be measured");
        return 0;
}

/*
 * The kernel's command line is ours alone: nothing of a tenant ever stands in
 * it. Each parameter is there for a measured reason; docs/engines.md has them.
 */
static bool command_line(const struct vmm_spec *spec, struct buffer *out)
{
        bool good = buffer_append_text(out,
                "quiet panic=-1 random.trust_cpu=on cryptomgr.notests audit=0 pci=off "
                "lsm=landlock,yama,bpf rcupdate.rcu_expedited=1 "
                "initcall_blacklist=init_kprobe_trace,trace_eval_init,tracer_init_tracefs,"
                "crypto_kdf108_init,load_system_certificate_list ");
        if (!spec->kvm)
                good = good &&
                        buffer_printf(out,
                                "tsc_early_khz=%u lpj=%u tsc=reliable no_timer_check "
                                "mitigations=off noreplace-smp psi=0 ",
                                spec->tsc_khz, spec->tsc_khz * LOOPS_PER_JIFFY_OF_KHZ);
        return good &&
                buffer_append_text(
                        out, spec->console ? "console=ttyS0 8250.nr_uarts=1" : "8250.nr_uarts=0");
}

/*
 * A template's RAM is its memory object. A clone maps the sealed copy privately:
 * QEMU opens it to write all the same, and the seal is what refuses.
 */
static bool add_memory(struct args *args, const struct vmm_spec *spec)
{
        unsigned long long mib = spec->memory_bytes / MIB;
        if (spec->origin == MACHINE_BOOT)
                return add(args, "memory-backend-ram,id=memory,size=%lluM,merge=off,dump=off", mib);
        return add(args,
                "memory-backend-file,id=memory,size=%lluM,mem-path=/proc/self/fd/%d,share=%s,"
                "merge=off,dump=off",
                mib, VMM_FD_MEMORY, spec->origin == MACHINE_TEMPLATE ? "on" : "off");
}

static bool add_beginning(struct args *args, const struct vmm_spec *spec, const char *line)
{
        if (spec->origin == MACHINE_CLONE)
                /* such a state does not say which machine it is of: our own checks have */
                return (!spec->devices_only ||
                               (add(args, "-global") &&
                                       add(args, "migration.send-configuration=off"))) &&
                        add(args, "-incoming") && add(args, "defer");
        return add(args, "-kernel") && add(args, "/proc/self/fd/%d", VMM_FD_VMLINUX) &&
                add(args, "-initrd") && add(args, "/proc/self/fd/%d", VMM_FD_INITRAMFS) &&
                add(args, "-append") && add(args, "%s", line);
}

static bool add_machine(struct args *args, const struct vmm_spec *spec)
{
        unsigned long long mib = spec->memory_bytes / MIB;
        bool good = add(args, "%s", spec->program) && add(args, "-nodefaults") &&
                add(args, "-no-user-config") && add(args, "-no-reboot") && add(args, "-display") &&
                add(args, "none") && add(args, "-sandbox") &&
                add(args,
                        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,"
                        "resourcecontrol=deny");
        /* Devices are found through ACPI; an emulated machine needs the old timers. */
        good = good && add(args, "-machine") &&
                add(args,
                        "microvm,acpi=on,pit=%s,pic=%s,rtc=on,isa-serial=%s,usb=off,pcie=off,"
                        "mem-merge=off,dump-guest-core=off,auto-kernel-cmdline=off,"
                        "memory-backend=memory",
                        spec->kvm ? "off" : "on", spec->kvm ? "off" : "on",
                        spec->console ? "on" : "off");
        good = good && add(args, "-object") && add_memory(args, spec) && add(args, "-m") &&
                add(args, "%lluM", mib) && add(args, "-smp") && add(args, "%u", spec->vcpus) &&
                add(args, "-accel");
        if (spec->kvm)
                /* software KVM refuses one MSR of the host's, which ends QEMU */
                return good && add(args, "kvm") && add(args, "-cpu") &&
                        add(args, spec->software_kvm ? "host,-arch-capabilities" : "host");
        /* what is left out costs under emulation; docs/engines.md has the figures */
        return good && add(args, "tcg,tb-size=%u", VMM_TB_MIB) && add(args, "-cpu") &&
                add(args, "%s", VMM_CPU_EMULATED);
}

static bool add_drive(struct args *args, const char *name, int fd, int set, bool read_only)
{
        const char *on = read_only ? "on" : "off";
        const char *discard = read_only ? "ignore" : "unmap";
        return add(args, "-add-fd") && add(args, "fd=%d,set=%d", fd, set) &&
                add(args, "-blockdev") &&
                add(args,
                        "driver=file,node-name=%s-file,filename=/dev/fdset/%d,read-only=%s,"
                        "auto-read-only=off,locking=off,discard=%s",
                        name, set, on, discard) &&
                add(args, "-blockdev") &&
                add(args, "driver=raw,node-name=%s,file=%s-file,read-only=%s,discard=%s", name,
                        name, on, discard) &&
                add(args, "-device") &&
                add(args, "virtio-blk-device,drive=%s,werror=report,rerror=report", name);
}

static bool add_devices(struct args *args, const struct vmm_spec *spec)
{
        bool good = add(args, "-chardev") && add(args, "socket,id=qmp,fd=%d", VMM_FD_QMP) &&
                add(args, "-mon") && add(args, "chardev=qmp,mode=control") &&
                add(args, "-chardev") && add(args, "socket,id=agent,fd=%d", VMM_FD_AGENT) &&
                add(args, "-device") && add(args, "virtio-serial-device,max_ports=2") &&
                add(args, "-device") &&
                add(args, "virtserialport,chardev=agent,name=%s,nr=1", WIRE_PORT_NAME);
        /* the guest numbers its disks in this order: vda is the root, vdb its disk */
        good = good && add_drive(args, "root", VMM_FD_ROOTFS, 1, true) &&
                add_drive(args, "disk", VMM_FD_DISK, 2, false);
        if (spec->console)
                good = good && add(args, "-chardev") && add(args, "stdio,id=console,signal=off") &&
                        add(args, "-serial") && add(args, "chardev:console");
        return good;
}

int args_build(const struct vmm_spec *spec, struct args *ret, cubby_error *err)
{
        if (vmm_spec_check(spec, err) < 0)
                return -1;
        AUTO_BUFFER struct buffer line;
        buffer_init(&line, COMMAND_LINE_MAX);
        struct args args = {.list = calloc(ARGS_MAX, sizeof *args.list)};
        if (args.list == NULL)
                return cubby_error_no_memory(err);
        bool good = command_line(spec, &line) && buffer_text(&line) != NULL &&
                add_machine(&args, spec) && add_devices(&args, spec) &&
                add_beginning(&args, spec, buffer_text(&line));
        if (!good) {
                args_free(&args);
                return cubby_error_no_memory(err);
        }
        *ret = args;
        return 0;
}
