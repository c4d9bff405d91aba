/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"
#include "image/stream.h"
#include "image/tree.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 255 /* domain and path together */
#define TAG_MAX_BYTES 128
#define DEFAULT_DOMAIN "docker.io"
#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define ALPHANUMERIC LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* A reference taken apart; pieces point into the text and end where the next begins. */
struct parts {
        const char *domain;
        size_t domain_length; /* 0: none given */
        const char *path;
        size_t path_length;
        const char *tag; /* NULL: none */
        size_t tag_length;
        const char *digest; /* NULL: none; to the end of the text */
};

static int refuse(const char *name, const char *rule, cubby_error *err)
{
        char quoted[QUOTED_MAX];
        return cubby_error_set(err, CUBBY_E_INVALID, "'%s' is not an image name: %s",
                quote_name(quoted, name), rule);
}

static size_t span(const char *text, size_t length, const char *accept)
{
        size_t count = strspn(text, accept);
        return count < length ? count : length;
}

/* Lower case letters and digits, joined by ".", "_", "__" or any number of "-". */
static bool component_valid(const char *text, size_t length)
{
        size_t at = 0;
        for (;;) {
                size_t word = span(text + at, length - at, LOWER);
                if (word == 0)
                        return false;
                at += word;
                if (at == length)
                        return true;
                size_t dashes = span(text + at, length - at, "-");
                size_t scores = span(text + at, length - at, "_");
                if (dashes > 0)
                        at += dashes;
                else if (scores == 1 || scores == 2)
                        at += scores;
                else if (text[at] == '.')
                        at++;
                else
                        return false;
        }
}

static bool path_valid(const char *path, size_t length)
{
        for (size_t at = 0;;) {
                const char *slash = memchr(path + at, '/', length - at);
                size_t piece = slash == NULL ? length - at : (size_t)(slash - path) - at;
                if (!component_valid(path + at, piece))
                        return false;
                if (slash == NULL)
                        return true;
                at += piece + 1;
        }
}

/* Host labels joined by dots, then an optional port. */
static bool domain_valid(const char *domain, size_t length)
{
        const char *colon = memchr(domain, ':', length);
        size_t host = colon == NULL ? length : (size_t)(colon - domain);
        if (colon != NULL) {
                size_t port = length - host - 1;
                if (port == 0 || port > 5 || span(colon + 1, port, DIGITS) != port)
                        return false;
        }
        for (size_t at = 0; at <= host;) {
                size_t label = span(domain + at, host - at, ALPHANUMERIC "-");
                if (label == 0 || domain[at] == '-' || domain[at + label - 1] == '-')
                        return false;
                at += label;
                if (at < host && domain[at] != '.')
                        return false;
                at++;
        }
        return true;
}

static bool tag_valid(const char *tag, size_t length)
{
        return length > 0 && length <= TAG_MAX_BYTES && tag[0] != '.' && tag[0] != '-' &&
                span(tag, length, ALPHANUMERIC "_.-") == length;
}

/* The first component is a host when it looks like one, as Docker decides it. */
static bool looks_like_domain(const char *text, size_t length)
{
        static const char localhost[] = "localhost";
        if (length == strlen(localhost) && memcmp(text, localhost, length) == 0)
                return true;
        for (size_t i = 0; i < length; i++)
                if (text[i] == '.' || text[i] == ':' || (text[i] >= 'A' && text[i] <= 'Z'))
                        return true;
        return false;
}

static void split(const char *name, struct parts *ret)
{
        struct parts parts = {0};
        size_t length = strlen(name);
        const char *at = strchr(name, '@');
        if (at != NULL) {
                parts.digest = at + 1;
                length = (size_t)(at - name);
        }
        const char *slash = memchr(name, '/', length);
        if (slash != NULL && looks_like_domain(name, (size_t)(slash - name))) {
                parts.domain = name;
                parts.domain_length = (size_t)(slash - name);
                length -= parts.domain_length + 1;
                name = slash + 1;
        }
        const char *colon = memrchr(name, ':', length);
        const char *last = memrchr(name, '/', length);
        if (colon != NULL && (last == NULL || colon > last)) {
                parts.tag = colon + 1;
                parts.tag_length = length - (size_t)(colon - name) - 1;
                length = (size_t)(colon - name);
        }
        parts.path = name;
        parts.path_length = length;
        *ret = parts;
}

static bool is_hex_id(const char *name)
{
        return strlen(name) == 64 && strspn(name, "0123456789abcdef") == 64;
}

int image_name_normalize(const char *name, char **ret, cubby_error *err)
{
        struct parts parts;
        if (name == NULL || name[0] == '\0')
                return cubby_error_set(err, CUBBY_E_INVALID, "an image name may not be empty");
        if (is_hex_id(name))
                return refuse(name, "64 hex digits are an image id", err);
        split(name, &parts);
        if (parts.domain_length > 0 && !domain_valid(parts.domain, parts.domain_length))
                return refuse(name, "the registry must be HOST or HOST:PORT", err);
        if (parts.path_length == 0 || !path_valid(parts.path, parts.path_length))
                return refuse(name,
                        "the repository must be lower case letters and digits, with single '.', "
                        "'_', '__' or '-' between them",
                        err);
        if (parts.domain_length + parts.path_length > NAME_MAX_BYTES)
                return refuse(name, "it is longer than 255 bytes", err);
        if (parts.tag != NULL && !tag_valid(parts.tag, parts.tag_length))
                return refuse(name,
                        "the tag must be 1 to 128 letters, digits, '_', '.' or '-', and begin "
                        "with none of the last two",
                        err);
        if (parts.digest != NULL && !digest_valid(parts.digest))
                return refuse(name, "the digest must be sha256: and 64 hex digits", err);
        bool hub = parts.domain_length == 0 ||
                strncmp(parts.domain, "index.docker.io/", strlen("index.docker.io/")) == 0 ||
                strncmp(parts.domain, "docker.io/", strlen("docker.io/")) == 0;
        bool single = memchr(parts.path, '/', parts.path_length) == NULL;
        bool latest = parts.tag == NULL && parts.digest == NULL;
        char *text = NULL;
        if (asprintf(&text, "%.*s/%s%.*s%s%.*s%s%s",
                    hub ? (int)strlen(DEFAULT_DOMAIN) : (int)parts.domain_length,
                    hub ? DEFAULT_DOMAIN : parts.domain, hub && single ? "library/" : "",
                    (int)parts.path_length, parts.path,
                    parts.tag != NULL ? ":"
                            : latest  ? ":latest"
                                      : "",
                    (int)parts.tag_length, parts.tag == NULL ? "" : parts.tag,
                    parts.digest != NULL ? "@" : "", parts.digest == NULL ? "" : parts.digest) < 0)
                return cubby_error_no_memory(err);
        *ret = text;
        return 0;
}
