/* SPDX-License-Identifier: Apache-2.0 */
#include "file_rows.h"

#include "values.h"

const struct column file_columns[] = {
        {"Mode", "MODE"},
        {"Links", NULL},
        {"UID", "UID"},
        {"GID", "GID"},
        {"Size", "SIZE"},
        {"Disk", NULL},
        {"Modified", "MODIFIED"},
        {"Path", "PATH"},
        {"Target", "TARGET"},
        {"Type", NULL},
        {"Inode", NULL},
        {NULL, NULL},
};

bool parse_mode(const char *text, uint32_t *ret)
{
        uint32_t value = 0;
        const char *at = text;

        for (; *at >= '0' && *at <= '7' && value <= 07777; at++)
                value = value * 8 + (uint32_t)(*at - '0');
        if (at == text || *at != '\0' || value == 0 || value > 07777)
                return false;
        *ret = value;
        return true;
}

static const char *type_name(int type)
{
        switch (type) {
        case CUBBY_FILE_REGULAR:
                return "file";
        case CUBBY_FILE_FOLDER:
                return "folder";
        case CUBBY_FILE_LINK:
                return "link";
        case CUBBY_FILE_FIFO:
                return "fifo";
        case CUBBY_FILE_SOCKET:
                return "socket";
        case CUBBY_FILE_BLOCK:
                return "block";
        default:
                return "char";
        }
}

/* "drwxr-xr-x", as ls writes it. */
static void format_mode(const cubby_file_info *info, char text[11])
{
        static const char letters[] = "rwxrwxrwx";
        static const struct {
                uint32_t bit;
                int at;
                char with, without; /* the permission to execute */
        } special[] = {{04000, 3, 's', 'S'}, {02000, 6, 's', 'S'}, {01000, 9, 't', 'T'}};
        text[0] = info->type == CUBBY_FILE_REGULAR ? '-' : (char)info->type;
        for (int i = 0; i < 9; i++)
                text[i + 1] = '-';
        for (int i = 0; i < 9; i++)
                if ((info->mode & (0400U >> i)) != 0)
                        text[i + 1] = letters[i];
        for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
                if ((info->mode & special[i].bit) != 0)
                        text[special[i].at] =
                                text[special[i].at] == 'x' ? special[i].with : special[i].without;
        text[10] = '\0';
}

static json_t *document(const cubby_file_info *info)
{
        return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
                "path", json_text(info->path), "type", type_name(info->type), "mode",
                (json_int_t)info->mode, "uid", (json_int_t)info->uid, "gid", (json_int_t)info->gid,
                "links", (json_int_t)info->links, "size_bytes", (json_int_t)info->bytes,
                "disk_bytes", (json_int_t)info->disk_bytes, "inode", (json_int_t)info->inode,
                "device_major", (json_int_t)info->device_major, "device_minor",
                (json_int_t)info->device_minor, "modified_ns", (json_int_t)info->modified_ns,
                "changed_ns", (json_int_t)info->changed_ns, "target", json_text(info->target));
}

static void add_number(struct list *list, json_t *row, const char *field, uint64_t value)
{
        char text[VALUE_TEXT_MAX];

        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
        list_text(list, row, field, text);
}

void file_row_add(struct list *list, const cubby_file_info *info)
{
        char text[VALUE_TEXT_MAX];
        json_t *row = list_row(list, document(info));

        if (row == NULL)
                return;
        format_mode(info, text);
        list_text(list, row, "Mode", text);
        add_number(list, row, "Links", info->links);
        add_number(list, row, "UID", info->uid);
        add_number(list, row, "GID", info->gid);
        add_number(list, row, "Size", info->bytes);
        add_number(list, row, "Disk", info->disk_bytes);
        list_text(list, row, "Modified", format_stamp(info->modified_ns, text));
        list_text(list, row, "Path", info->path);
        list_text(list, row, "Target", info->target);
        list_text(list, row, "Type", type_name(info->type));
        add_number(list, row, "Inode", info->inode);
}
