/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

/* Makes stdin's terminal hand over every byte. False when it is no terminal. */
bool terminal_raw(void);
/* As it was found. Safe to call at any time and more than once. */
void terminal_restore(void);
/* Raw again, after another program had the terminal. */
void terminal_again(void);
/* Of stdout's terminal, else stdin's. False when neither is one. */
bool terminal_size(uint16_t *ret_rows, uint16_t *ret_columns);

#endif
