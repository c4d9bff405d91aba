/* SPDX-License-Identifier: Apache-2.0 */
#include "box/box.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char *const manners[] = {
        "able",
        "amber",
        "azure",
        "bold",
        "brave",
        "brisk",
        "bright",
        "calm",
        "clever",
        "cosy",
        "crisp",
        "curious",
        "daring",
        "deft",
        "eager",
        "fair",
        "fleet",
        "fond",
        "gentle",
        "glad",
        "golden",
        "hardy",
        "honest",
        "humble",
        "jolly",
        "keen",
        "kind",
        "lively",
        "lucky",
        "mellow",
        "merry",
        "mighty",
        "modest",
        "neat",
        "nimble",
        "noble",
        "patient",
        "plucky",
        "proud",
        "quick",
        "quiet",
        "ready",
        "rosy",
        "sage",
        "silent",
        "sleek",
        "smart",
        "snug",
        "spry",
        "steady",
        "sturdy",
        "sunny",
        "swift",
        "tender",
        "tidy",
        "trusty",
        "vivid",
        "warm",
        "wise",
        "witty",
};

static const char *const animals[] = {
        "badger",
        "bear",
        "beaver",
        "bison",
        "camel",
        "cat",
        "crane",
        "crow",
        "deer",
        "dove",
        "eagle",
        "falcon",
        "ferret",
        "finch",
        "fox",
        "gecko",
        "goose",
        "hare",
        "hawk",
        "hedgehog",
        "heron",
        "horse",
        "ibis",
        "jackdaw",
        "kestrel",
        "koala",
        "lark",
        "lemur",
        "lion",
        "lynx",
        "magpie",
        "marmot",
        "marten",
        "mole",
        "moose",
        "mouse",
        "newt",
        "otter",
        "owl",
        "panda",
        "parrot",
        "pigeon",
        "pony",
        "puffin",
        "rabbit",
        "raven",
        "robin",
        "salmon",
        "seal",
        "sparrow",
        "squirrel",
        "stork",
        "swan",
        "tiger",
        "toad",
        "trout",
        "turtle",
        "vole",
        "wolf",
        "wren",
};

static void random_bytes(void *data, size_t size)
{
        uint8_t *next = data;
        while (size > 0) {
                ssize_t got = getrandom(next, size, 0);
                if (got <= 0)
                        continue; /* only a signal can end it early */
                next += got;
                size -= (size_t)got;
        }
}

void box_make_id(char ret[33])
{
        static const char digits[] = "0123456789abcdef";
        uint8_t bytes[16];
        random_bytes(bytes, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++) {
                ret[2 * i] = digits[bytes[i] >> 4];
                ret[2 * i + 1] = digits[bytes[i] & 15];
        }
        ret[32] = '\0';
}

void box_make_name(char ret[64], bool numbered)
{
        uint32_t choice[3];
        random_bytes(choice, sizeof choice);
        const char *manner = manners[choice[0] % (sizeof manners / sizeof manners[0])];
        const char *animal = animals[choice[1] % (sizeof animals / sizeof animals[0])];
        if (numbered)
                (void)snprintf(ret, 64, "%s_%s_%u", manner, animal, choice[2] % 1000000);
        else
                (void)snprintf(ret, 64, "%s_%s", manner, animal);
}
