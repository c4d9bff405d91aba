/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/microvm/probe.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUEST_MEMORY 0x10000U
#define TABLE_4 0x1000U /* page map level 4, then the two levels below it */
#define TABLE_3 0x2000U
#define TABLE_2 0x3000U
#define CODE 0x8000U

#define PAGE_PRESENT_WRITABLE 0x3U
#define PAGE_LARGE 0x80U
#define CR0_PE_ET_PG 0x80000011U
#define CR4_PAE 0x20U
#define EFER_LME_LMA 0x500U
#define RFLAGS_RESERVED 0x2U

/* mov ecx, 100000; again: dec ecx; jnz again; hlt */
static const uint8_t countdown[] = {0xb9, 0xa0, 0x86, 0x01, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0xf4};

struct probe_result probe_decide(const struct probe_facts *facts)
{
        struct probe_result result = {.support = KVM_SUPPORT_SOFTWARE};
        char *text = result.text;
        switch (facts->end) {
        case PROBE_NO_DEVICE:
                result.support = KVM_SUPPORT_NONE;
                (void)snprintf(text, PROBE_TEXT_MAX, "/dev/kvm cannot be opened: %s",
                        strerrordesc_np(facts->error_number));
                return result;
        case PROBE_REFUSED:
                result.support = facts->software_module ? KVM_SUPPORT_SOFTWARE : KVM_SUPPORT_NONE;
                (void)snprintf(text, PROBE_TEXT_MAX, "KVM refused a small guest: %s",
                        strerrordesc_np(facts->error_number));
                return result;
        case PROBE_BROKE:
                (void)snprintf(text, PROBE_TEXT_MAX, "KVM broke off a small guest (exit reason %u)",
                        facts->exit_reason);
                return result;
        case PROBE_TIMED_OUT:
                (void)snprintf(text, PROBE_TEXT_MAX,
                        "KVM interprets its guests: 100000 loops took more than %d ms",
                        PROBE_BOUND_MS);
                return result;
        case PROBE_HALTED:
                break;
        }
        if (facts->software_module) {
                (void)snprintf(text, PROBE_TEXT_MAX,
                        "KVM is software (kvm_pvm): it needs a guest kernel made for it");
                return result;
        }
        result.support = KVM_SUPPORT_HARDWARE;
        (void)snprintf(text, PROBE_TEXT_MAX, "hardware virtualisation (a small guest took %lld us)",
                (long long)(facts->elapsed_ns / 1000));
        return result;
}

int probe_choose(const struct probe_result *probe, enum accel accel, bool own_kernel,
        enum isolation *ret, cubby_error *err)
{
        bool hardware = probe->support == KVM_SUPPORT_HARDWARE;
        if (accel == ACCEL_TCG || (accel == ACCEL_AUTO && !hardware))
                *ret = ISOLATION_EMULATED;
        else if (hardware)
                *ret = ISOLATION_HARDWARE;
        else if (probe->support == KVM_SUPPORT_SOFTWARE && own_kernel)
                *ret = ISOLATION_SOFTWARE;
        else
                return cubby_error_set(err, CUBBY_E_UNSUPPORTED,
                        "KVM was asked for and is of no use here: %s; use accel 'auto' or 'tcg' "
                        "(software emulation)%s",
                        probe->text,
                        probe->support == KVM_SUPPORT_SOFTWARE
                                ? ", or name a kernel that is made for this KVM"
                                : "");
        return 0;
}

static void build_guest(uint8_t *memory)
{
        uint64_t entry = TABLE_3 | PAGE_PRESENT_WRITABLE;
        memcpy(memory + TABLE_4, &entry, sizeof entry);
        entry = TABLE_2 | PAGE_PRESENT_WRITABLE;
        memcpy(memory + TABLE_3, &entry, sizeof entry);
        entry = PAGE_LARGE | PAGE_PRESENT_WRITABLE;
        memcpy(memory + TABLE_2, &entry, sizeof entry);
        memcpy(memory + CODE, countdown, sizeof countdown);
}

static void enter_long_mode(struct kvm_sregs *sregs)
{
        struct kvm_segment code = {.limit = 0xffffffff,
                .selector = 8,
                .type = 11,
                .present = 1,
                .s = 1,
                .l = 1,
                .g = 1};
        struct kvm_segment data = code;
        data.selector = 16;
        data.type = 3;
        data.l = 0;
        data.db = 1;
        sregs->cs = code;
        sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
        sregs->cr0 = CR0_PE_ET_PG;
        sregs->cr3 = TABLE_4;
        sregs->cr4 = CR4_PAE;
        sregs->efer = EFER_LME_LMA;
}

/* Makes the guest's one processor ready. Returns its descriptor or -1. */
static int prepare(int kvm, struct kvm_run **ret_run)
{
        int machine = ioctl(kvm, KVM_CREATE_VM, 0);
        uint8_t *memory = mmap(
                NULL, GUEST_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
        if (machine < 0 || memory == MAP_FAILED || run_size < (int)sizeof(struct kvm_run))
                return -1;
        build_guest(memory);
        struct kvm_userspace_memory_region region = {
                .memory_size = GUEST_MEMORY, .userspace_addr = (uint64_t)(uintptr_t)memory};
        if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) < 0)
                return -1;
        int vcpu = ioctl(machine, KVM_CREATE_VCPU, 0);
        struct kvm_sregs sregs;
        struct kvm_regs regs = {.rip = CODE, .rflags = RFLAGS_RESERVED};
        if (vcpu < 0 || ioctl(vcpu, KVM_GET_SREGS, &sregs) < 0)
                return -1;
        enter_long_mode(&sregs);
        if (ioctl(vcpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(vcpu, KVM_SET_REGS, &regs) < 0)
                return -1;
        struct kvm_run *run =
                mmap(NULL, (size_t)run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
        if (run == MAP_FAILED)
                return -1;
        *ret_run = run;
        return vcpu;
}

/* In the child; system calls only. */
static void run_guest(int kvm, struct probe_facts *facts)
{
        struct kvm_run *run = NULL;
        int vcpu = prepare(kvm, &run);
        if (vcpu < 0) {
                facts->end = PROBE_REFUSED;
                facts->error_number = errno;
                return;
        }
        int64_t start = clock_monotonic_ns();
        if (ioctl(vcpu, KVM_RUN, 0) < 0) {
                facts->end = PROBE_REFUSED;
                facts->error_number = errno;
                return;
        }
        facts->elapsed_ns = clock_monotonic_ns() - start;
        facts->exit_reason = run->exit_reason;
        facts->end = run->exit_reason == KVM_EXIT_HLT ? PROBE_HALTED : PROBE_BROKE;
}

/* A child without exec: KVM_RUN cannot be bounded any other way than by killing
 * the process that is in it. */
static void run_in_child(int kvm, struct probe_facts *facts)
{
        int pipe_fds[2];
        facts->end = PROBE_REFUSED;
        if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
                facts->error_number = errno;
                return;
        }
        AUTO_FD int read_end = pipe_fds[0];
        AUTO_FD int write_end = pipe_fds[1];
        sigset_t all;
        sigset_t before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        pid_t pid = fork();
        if (pid == 0) {
                run_guest(kvm, facts);
                (void)write_whole(write_end, facts, sizeof *facts);
                _exit(0);
        }
        int saved = errno;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pid < 0) {
                facts->error_number = saved;
                return;
        }
        close_quietly(take_fd(&write_end));
        int64_t deadline = deadline_after_ms(PROBE_BOUND_MS);
        struct pollfd poll_fd = {.fd = read_end, .events = POLLIN};
        int ready;
        do
                ready = poll(&poll_fd, 1, deadline_left_ms(deadline));
        while (ready < 0 && errno == EINTR);
        struct probe_facts answer;
        if (ready > 0 && read_whole(read_end, &answer, sizeof answer) == sizeof answer)
                *facts = answer;
        else
                facts->end = PROBE_TIMED_OUT;
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

struct probe_result probe_kvm(void)
{
        struct probe_facts facts = {
                .software_module = access("/sys/module/kvm_pvm", F_OK) == 0 ? 1 : 0};
        AUTO_FD int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (kvm < 0) {
                facts.end = PROBE_NO_DEVICE;
                facts.error_number = errno;
                return probe_decide(&facts);
        }
        int version = ioctl(kvm, KVM_GET_API_VERSION, 0);
        if (version != KVM_API_VERSION) {
                facts.end = PROBE_REFUSED;
                facts.error_number = version < 0 ? errno : EPROTO;
                return probe_decide(&facts);
        }
        /* one vendor module at a time: with this one the answer is known */
        if (facts.software_module)
                facts.end = PROBE_HALTED;
        else
                run_in_child(kvm, &facts);
        return probe_decide(&facts);
}
