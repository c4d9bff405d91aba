/* SPDX-License-Identifier: Apache-2.0 */
#include "files/files.h"

file_operation_fn *file_operation_find(uint16_t operation)
{
        static file_operation_fn *const operations[FILE_OPERATION_MAX] = {
                [FILE_STAT] = operate_stat,
                [FILE_TREE_OUT] = operate_tree_out,
                [FILE_TREE_IN] = operate_tree_in,
                [FILE_LIST] = operate_list,
                [FILE_READ] = operate_read,
                [FILE_READ_LINES] = operate_read_lines,
                [FILE_WRITE] = operate_write,
                [FILE_REMOVE] = operate_remove,
                [FILE_RENAME] = operate_rename,
                [FILE_MAKE_FOLDER] = operate_make_folder,
                [FILE_GLOB] = operate_search,
                [FILE_GREP] = operate_search,
                [FILE_WATCH] = operate_watch,
        };
        return operation < FILE_OPERATION_MAX ? operations[operation] : NULL;
}
