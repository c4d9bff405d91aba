/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

/* Sizes, durations and the like: strict readers and friendly writers. Readers
 * want the whole text and leave *ret alone when they return false. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "512M", "1.5g", "64MiB", "1024": powers of 1024, a bare number is bytes. */
bool parse_size(const char *text, uint64_t *ret_bytes);
/* "30s", "1m30s", "500ms", "2h", "1d12h": units falling. Not negative. */
bool parse_duration(const char *text, uint64_t *ret_ms);
/* Like parse_duration, and "10" for ten seconds. */
bool parse_seconds(const char *text, uint64_t *ret_ms);
/* "2", "1.5", "0.25" in thousandths. */
bool parse_cpus(const char *text, uint64_t *ret_milli);
bool parse_number(const char *text, uint64_t *ret);
/* "KILL", "SIGKILL", "9". */
bool parse_signal(const char *text, int *ret);
/* RFC 3339 "2026-01-02T03:04:05[.5](Z|+01:00)", Unix seconds, or a duration ago. */
bool parse_since(const char *text, int64_t now_ns, int64_t *ret_ns);

#define VALUE_TEXT_MAX 48
/* Write into text[VALUE_TEXT_MAX] and return it. */
const char *format_size(uint64_t bytes, char *text);          /* "12.3MB", powers of 1000 */
const char *format_binary(uint64_t bytes, char *text);        /* "12.3MiB" */
const char *format_age(int64_t seconds, char *text);          /* "3 minutes" */
const char *format_time(int64_t time_ns, char *text);         /* RFC 3339 in UTC; "" for 0 */
const char *format_stamp(int64_t time_ns, char *text);        /* the same with nanoseconds */
const char *format_millis(uint64_t milliseconds, char *text); /* "1.25s" */

int64_t now_ns(void);       /* since 1970 */
int64_t monotonic_ms(void); /* for deadlines */

#endif
