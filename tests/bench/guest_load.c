/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the measurements run in a box, without a libc, so that its own start and
 * loops cost as little as a program can:
 *
 *     load true
 *     load out BYTES PIECE    zeros to stdout
 *     load in PIECE           reads stdin to its end
 */
#include <stddef.h>
#include <stdint.h>

#define NUMBER_READ 0
#define NUMBER_WRITE 1
#define NUMBER_EXIT 231
#define PIECE_MAX (1U << 20)

static char piece[PIECE_MAX];

static long call(long number, long first, void *second, size_t third)
{
        long result = number;
        __asm__ volatile("syscall"
                         : "+a"(result)
                         : "D"(first), "S"(second), "d"(third)
                         : "rcx", "r11", "memory");
        return result;
}

static size_t number(const char *text)
{
        size_t value = 0;
        for (; *text >= '0' && *text <= '9'; text++)
                value = value * 10 + (size_t)(*text - '0');
        return value;
}

static long run(long count, char **words)
{
        char mode = count > 1 ? words[1][0] : 't';
        if (mode == 'o' && count > 3) {
                size_t size = number(words[3]) < PIECE_MAX ? number(words[3]) : PIECE_MAX;
                for (size_t left = number(words[2]); left > 0;) {
                        long done = call(NUMBER_WRITE, 1, piece, left < size ? left : size);
                        if (done <= 0)
                                return 1;
                        left -= (size_t)done;
                }
        }
        if (mode == 'i' && count > 2) {
                size_t size = number(words[2]) < PIECE_MAX ? number(words[2]) : PIECE_MAX;
                long got;
                do
                        got = call(NUMBER_READ, 0, piece, size);
                while (got > 0);
                return got < 0;
        }
        return 0;
}

/* The kernel leaves the count and the words of the command on the stack. */
__attribute__((noreturn, used)) static void begin(long *stack)
{
        (void)call(NUMBER_EXIT, run(stack[0], (char **)(stack + 1)), NULL, 0);
        __builtin_unreachable();
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
