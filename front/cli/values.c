/* SPDX-License-Identifier: Apache-2.0 */
#include "values.h"

#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define NS_PER_SECOND INT64_C(1000000000)
#define FRACTION_DIGITS 9

/* A decimal number: whole part, and the fraction in billionths. */
static bool read_decimal(const char **cursor, uint64_t *ret_whole, uint64_t *ret_billionths)
{
        const char *p = *cursor;
        uint64_t whole = 0;
        uint64_t fraction = 0;

        if (!isdigit((unsigned char)*p))
                return false;
        for (; isdigit((unsigned char)*p); p++)
                if (__builtin_mul_overflow(whole, 10U, &whole) ||
                        __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
                        return false;
        if (*p == '.') {
                uint64_t place = UINT64_C(100000000);
                int digits = 0;

                for (p++; isdigit((unsigned char)*p); p++, digits++, place /= 10)
                        fraction += place * (uint64_t)(*p - '0');
                if (digits == 0 || digits > FRACTION_DIGITS)
                        return false;
        }
        *cursor = p;
        *ret_whole = whole;
        *ret_billionths = fraction;
        return true;
}

/* (whole + billionths) * unit, refused on overflow. */
static bool scale(uint64_t whole, uint64_t billionths, uint64_t unit, uint64_t *ret)
{
        uint64_t value = 0;
        unsigned __int128 part = (unsigned __int128)billionths * unit / 1000000000U;

        if (__builtin_mul_overflow(whole, unit, &value) ||
                __builtin_add_overflow(value, (uint64_t)part, &value))
                return false;
        *ret = value;
        return true;
}

bool parse_number(const char *text, uint64_t *ret)
{
        uint64_t value = 0;
        uint64_t fraction = 0;

        if (strchr(text, '.') != NULL || !read_decimal(&text, &value, &fraction) || *text != '\0')
                return false;
        *ret = value;
        return true;
}

bool parse_size(const char *text, uint64_t *ret_bytes)
{
        static const char units[] = "bkmgt";
        uint64_t whole = 0;
        uint64_t fraction = 0;
        uint64_t unit = 1;
        bool fractional = strchr(text, '.') != NULL;

        if (!read_decimal(&text, &whole, &fraction))
                return false;
        if (*text != '\0') {
                const char *found = strchr(units, tolower((unsigned char)*text));

                if (found == NULL)
                        return false;
                unit = UINT64_C(1) << (10 * (found - units));
                text++;
                if (unit > 1 && (strcasecmp(text, "b") == 0 || strcasecmp(text, "ib") == 0))
                        text += strlen(text);
        }
        if (*text != '\0' || (fractional && unit == 1))
                return false;
        return scale(whole, fraction, unit, ret_bytes);
}

struct time_unit {
        const char *name;
        uint64_t milliseconds;
};

/* Falling, so that each part of "1m30s" must come from further down. */
static const struct time_unit time_units[] = {
        {"d", 86400000},
        {"h", 3600000},
        {"m", 60000},
        {"s", 1000},
        {"ms", 1},
};
#define TIME_UNITS (sizeof(time_units) / sizeof(time_units[0]))

static bool read_unit(const char **cursor, size_t *next, uint64_t *ret_unit)
{
        size_t length = strspn(*cursor, "abcdefghijklmnopqrstuvwxyz");

        for (size_t i = *next; i < TIME_UNITS; i++)
                if (strlen(time_units[i].name) == length &&
                        strncmp(*cursor, time_units[i].name, length) == 0) {
                        *cursor += length;
                        *next = i + 1;
                        *ret_unit = time_units[i].milliseconds;
                        return true;
                }
        return false;
}

bool parse_duration(const char *text, uint64_t *ret_ms)
{
        uint64_t total = 0;
        size_t next = 0;

        if (*text == '\0')
                return false;
        while (*text != '\0') {
                uint64_t whole = 0;
                uint64_t fraction = 0;
                uint64_t unit = 0;
                uint64_t part = 0;

                if (!read_decimal(&text, &whole, &fraction) || !read_unit(&text, &next, &unit) ||
                        !scale(whole, fraction, unit, &part) ||
                        __builtin_add_overflow(total, part, &total))
                        return false;
        }
        if (total > INT64_MAX / 1000000)
                return false;
        *ret_ms = total;
        return true;
}

bool parse_seconds(const char *text, uint64_t *ret_ms)
{
        uint64_t seconds = 0;

        if (!parse_number(text, &seconds))
                return parse_duration(text, ret_ms);
        if (seconds > INT64_MAX / NS_PER_SECOND)
                return false;
        *ret_ms = seconds * 1000;
        return true;
}

bool parse_cpus(const char *text, uint64_t *ret_milli)
{
        uint64_t whole = 0;
        uint64_t fraction = 0;

        if (!read_decimal(&text, &whole, &fraction) || *text != '\0' || fraction % 1000000 != 0)
                return false;
        return scale(whole, fraction, 1000, ret_milli);
}

bool parse_signal(const char *text, int *ret)
{
        uint64_t number = 0;

        if (parse_number(text, &number)) {
                if (number < 1 || number > (uint64_t)SIGRTMAX)
                        return false;
                *ret = (int)number;
                return true;
        }
        if (strncasecmp(text, "SIG", 3) == 0)
                text += 3;
        for (int candidate = 1; candidate < NSIG; candidate++) {
                const char *name = sigabbrev_np(candidate);

                if (name != NULL && strcasecmp(name, text) == 0) {
                        *ret = candidate;
                        return true;
                }
        }
        return false;
}

static bool read_two_digits(const char *text, int most, int *ret)
{
        if (!isdigit((unsigned char)text[0]) || !isdigit((unsigned char)text[1]))
                return false;
        *ret = (text[0] - '0') * 10 + (text[1] - '0');
        return *ret <= most;
}

/* "Z", "+01:30" */
static bool read_zone(const char *text, int64_t *ret_seconds)
{
        int hours = 0;
        int minutes = 0;

        if (strcmp(text, "Z") == 0) {
                *ret_seconds = 0;
                return true;
        }
        if (strlen(text) != 6 || (*text != '+' && *text != '-') || text[3] != ':' ||
                !read_two_digits(text + 1, 14, &hours) || !read_two_digits(text + 4, 59, &minutes))
                return false;
        *ret_seconds = (int64_t)(hours * 3600 + minutes * 60) * (*text == '-' ? -1 : 1);
        return true;
}

static bool read_moment(const char *text, int64_t *ret_ns)
{
        struct tm parts = {0};
        const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
        int64_t fraction = 0;
        int64_t zone = 0;

        if (rest == NULL || parts.tm_year < 70 || parts.tm_year > 300)
                return false;
        if (*rest == '.') {
                int64_t place = NS_PER_SECOND / 10;

                for (rest++; isdigit((unsigned char)*rest); rest++, place /= 10)
                        fraction += place * (*rest - '0');
        }
        if (!read_zone(rest, &zone))
                return false;
        *ret_ns = ((int64_t)timegm(&parts) - zone) * NS_PER_SECOND + fraction;
        return true;
}

bool parse_since(const char *text, int64_t now, int64_t *ret_ns)
{
        uint64_t value = 0;

        if (parse_number(text, &value)) {
                if (value > (uint64_t)(INT64_MAX / NS_PER_SECOND))
                        return false;
                *ret_ns = (int64_t)value * NS_PER_SECOND;
                return true;
        }
        if (parse_duration(text, &value)) {
                int64_t ago = (int64_t)value * 1000000;

                *ret_ns = ago < now ? now - ago : 0;
                return true;
        }
        return read_moment(text, ret_ns);
}

static const char *format_scaled(uint64_t bytes, double step, const char *const *units, char *text)
{
        double value = (double)bytes;
        size_t unit = 0;

        while (value >= step - 0.05 && units[unit + 1] != NULL) {
                value /= step;
                unit++;
        }
        if (unit == 0)
                (void)snprintf(text, VALUE_TEXT_MAX, "%" PRIu64 "%s", bytes, units[0]);
        else
                (void)snprintf(text, VALUE_TEXT_MAX, "%.*f%s",
                        value < 10            ? 2
                                : value < 100 ? 1
                                              : 0,
                        value, units[unit]);
        return text;
}

const char *format_size(uint64_t bytes, char *text)
{
        static const char *const units[] = {"B", "kB", "MB", "GB", "TB", NULL};

        return format_scaled(bytes, 1000, units, text);
}

const char *format_binary(uint64_t bytes, char *text)
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", NULL};

        return format_scaled(bytes, 1024, units, text);
}

const char *format_age(int64_t seconds, char *text)
{
        static const struct {
                int64_t seconds;
                const char *name;
        } steps[] = {{INT64_C(31536000), "year"}, {2592000, "month"}, {604800, "week"},
                {86400, "day"}, {3600, "hour"}, {60, "minute"}, {1, "second"}};

        if (seconds < 1) {
                (void)snprintf(text, VALUE_TEXT_MAX, "Less than a second");
                return text;
        }
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
                if (seconds >= steps[i].seconds) {
                        int64_t count = seconds / steps[i].seconds;

                        (void)snprintf(text, VALUE_TEXT_MAX, "%" PRId64 " %s%s", count,
                                steps[i].name, count == 1 ? "" : "s");
                        break;
                }
        return text;
}

static const char *format_moment(int64_t time_ns, bool nanoseconds, char *text)
{
        time_t seconds = (time_t)(time_ns / NS_PER_SECOND);
        struct tm parts;
        size_t used;

        text[0] = '\0';
        if (time_ns <= 0 || gmtime_r(&seconds, &parts) == NULL)
                return text;
        used = strftime(text, VALUE_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &parts);
        if (nanoseconds)
                (void)snprintf(text + used, VALUE_TEXT_MAX - used, ".%09" PRId64 "Z",
                        time_ns % NS_PER_SECOND);
        else
                (void)snprintf(text + used, VALUE_TEXT_MAX - used, "Z");
        return text;
}

const char *format_time(int64_t time_ns, char *text)
{
        return format_moment(time_ns, false, text);
}

const char *format_stamp(int64_t time_ns, char *text)
{
        return format_moment(time_ns, true, text);
}

const char *format_millis(uint64_t milliseconds, char *text)
{
        if (milliseconds < 1000)
                (void)snprintf(text, VALUE_TEXT_MAX, "%" PRIu64 "ms", milliseconds);
        else
                (void)snprintf(text, VALUE_TEXT_MAX, "%.2fs", (double)milliseconds / 1000);
        return text;
}

static int64_t clock_ns(clockid_t clock)
{
        struct timespec now = {0};

        (void)clock_gettime(clock, &now);
        return (int64_t)now.tv_sec * NS_PER_SECOND + now.tv_nsec;
}

int64_t now_ns(void)
{
        return clock_ns(CLOCK_REALTIME);
}

int64_t monotonic_ms(void)
{
        return clock_ns(CLOCK_MONOTONIC) / 1000000;
}
