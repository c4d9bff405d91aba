/* SPDX-License-Identifier: Apache-2.0 */
#include "files/files.h"

file_operation_fn *file_operation_find(uint16_t operation)
{
        static file_operation_fn *const operations[FILE_OPERATION_MAX] = {
                [FILE_STAT] = operate_stat,
                [FILE_GLOB] = operate_search,
                [FILE_GREP] = operate_search,
                [FILE_WATCH] = operate_watch,
        };
        return operation < FILE_OPERATION_MAX ? operations[operation] : NULL;
}
