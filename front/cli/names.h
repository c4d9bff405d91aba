/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_NAMES_H
#define CLI_NAMES_H

/* "docker.io/library/python:3.12" as people write it: "python:3.12". */
const char *familiar_name(const char *name);
/* The first 12 digits of an id, "sha256:" left out. Writes into text[13]. */
const char *short_id(const char *id, char *text);

#endif
