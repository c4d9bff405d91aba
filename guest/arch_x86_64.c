/* SPDX-License-Identifier: Apache-2.0 */
#include "arch.h"

#include <sys/syscall.h>

/*
 * The child starts behind the system call with the parent's registers but on an
 * empty stack, so no C code may run there before `entry` is called; the frame
 * pointer is cleared to end backtraces.
 */
long arch_clone(
        const struct clone_args *args, size_t args_size, void (*entry)(void *data), void *data)
{
        long result;
        register void (*child_entry)(void *) __asm__("r8") = entry;
        register void *child_data __asm__("r9") = data;
        __asm__ volatile(
                "syscall\n\t"
                "testq %%rax, %%rax\n\t"
                "jnz 1f\n\t"
                "xorl %%ebp, %%ebp\n\t"
                "movq %%r9, %%rdi\n\t"
                "call *%%r8\n\t"
                "hlt\n"
                "1:"
                : "=a"(result)
                : "a"(SYS_clone3), "D"(args), "S"(args_size), "r"(child_entry), "r"(child_data)
                : "rcx", "r11", "cc", "memory");
        return result;
}
