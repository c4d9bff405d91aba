/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Two processes with 32 threads each on 4 keys: random acquires, releases, cancels,
 * and kill -9 of boxes and of one of the processes. Afterwards nothing may be left, and
 * at no time two boxes of one key or a box of a foreign one.
 *
 *      stress [SECONDS [SEED]]
 *
 * Boxes are those of the fake engine, with real shims. Over cubby.h only.
 */
#include <cubby/cubby.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#define THREADS 32
#define PROCESSES 2
#define KEYS 4
#define SECONDS_DEFAULT 5
#define STEP_MS 40

static const char config[] = "sandbox:\n"
                             "  image: tiny\n"
                             "  engine: fake\n"
                             "  pool: stress\n"
                             "  disk_mib: 64\n"
                             "  spares: 0\n"
                             "  replicas: 4\n"
                             "  idle_timeout: 1\n"
                             "  health_check_skip_seconds: 0.02\n"
                             "  acquire_timeout: 20\n"
                             "  lease_renewal_seconds: 0.5\n";

/* Shared by all processes. */
struct board {
        atomic_ulong acquires, fresh, cancels, failures, violations, kills, process_kills;
        atomic_ulong codes[CUBBY_E_CODE_MAX];
        atomic_bool stop;
        unsigned seed;
        char home[64];
};
static struct board *board;

static int64_t now_ms(void)
{
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void violation(const char *what, const char *more)
{
        (void)fprintf(stderr, "stress: VIOLATION: %s %s\n", what, more);
        atomic_fetch_add(&board->violations, 1);
}

static void on_log(void *data, int level, const char *line)
{
        if (level == CUBBY_LOG_ERROR)
                violation("an error in the log:", line);
}

static cubby *open_home(void)
{
        cubby_open_options options = CUBBY_INIT(cubby_open_options);
        cubby_error err = {0};
        cubby *host = NULL;
        options.home = board->home;
        options.log = on_log;
        if (cubby_open(&options, &host, &err) < 0) {
                (void)fprintf(stderr, "stress: %s\n", err.message);
                exit(1);
        }
        return host;
}

static cubby_provider *open_provider(cubby *host)
{
        cubby_provider_options options = CUBBY_INIT(cubby_provider_options);
        cubby_error err = {0};
        cubby_provider *provider = NULL;
        options.config_text = config;
        if (cubby_provider_open(host, &options, &provider, &err) < 0) {
                (void)fprintf(stderr, "stress: %s\n", err.message);
                exit(1);
        }
        return provider;
}

/* -------------------------------------------------------- one process -- */

struct worker {
        cubby_provider *provider;
        unsigned seed;
        pthread_t thread;
};

/* The labels of a box say whose it is. */
static void check_identity(cubby_box *box, const char *thread)
{
        char wanted[64] = "\"cubby.thread\": \"";
        char *text = NULL;
        size_t used = strlen(wanted);
        for (const char *next = thread; *next != '\0'; next++)
                used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%02x", *next);
        if (cubby_box_inspect(box, &text, NULL) < 0)
                return; /* it died meanwhile */
        if (strstr(text, "cubby.thread") != NULL && strstr(text, wanted + used - 4) == NULL)
                violation("a foreign box for", thread);
        cubby_free(text);
}

static void failed(const cubby_error *err)
{
        atomic_fetch_add(&board->failures, 1);
        if (atomic_fetch_add(&board->codes[err->code], 1) == 0)
                (void)printf("stress: for example: %s\n", err->message);
        if (err->code == CUBBY_E_IDENTITY || err->code == CUBBY_E_INVALID)
                violation("an acquire failed:", err->message);
}

static void use(struct worker *worker, const cubby_acquired *acquired, const char *thread)
{
        atomic_fetch_add(&board->acquires, 1);
        if (acquired->fresh)
                atomic_fetch_add(&board->fresh, 1);
        if (thread != NULL && rand_r(&worker->seed) % 8 == 0)
                check_identity(acquired->box, thread);
        if (rand_r(&worker->seed) % 4 == 0)
                (void)cubby_box_ping(acquired->box, 5000, NULL);
        cubby_box_close(acquired->box);
        if (rand_r(&worker->seed) % 8 != 0)
                (void)cubby_provider_release(worker->provider, acquired->id, NULL);
}

static void acquire_async(
        struct worker *worker, const cubby_acquire_options *options, const char *thread)
{
        cubby_request *request = NULL;
        cubby_acquired acquired = {0};
        cubby_error err = {0};
        if (cubby_provider_acquire_async(worker->provider, options, &request, &err) < 0) {
                failed(&err);
                return;
        }
        if (rand_r(&worker->seed) % 2 == 0) {
                (void)poll(NULL, 0, rand_r(&worker->seed) % 20);
                cubby_request_cancel(request);
                atomic_fetch_add(&board->cancels, 1);
        }
        if (cubby_request_finish(request, -1, &acquired, &err) == 0)
                use(worker, &acquired, thread);
        else if (err.code != CUBBY_E_CANCELLED)
                failed(&err);
        cubby_request_close(request);
}

static void *work(void *data)
{
        struct worker *worker = data;
        while (!atomic_load(&board->stop)) {
                char thread[8];
                cubby_acquired acquired = {0};
                cubby_error err = {0};
                cubby_acquire_options options = CUBBY_INIT(cubby_acquire_options);
                (void)snprintf(thread, sizeof thread, "k%u", rand_r(&worker->seed) % KEYS);
                options.user = "u";
                options.user_size = 1;
                options.thread = thread;
                options.thread_size = strlen(thread);
                if (rand_r(&worker->seed) % 4 == 0)
                        acquire_async(worker, &options, thread);
                else if (cubby_provider_acquire(worker->provider, &options, &acquired, &err) == 0)
                        use(worker, &acquired, thread);
                else
                        failed(&err);
                (void)poll(NULL, 0, rand_r(&worker->seed) % 3);
        }
        return NULL;
}

static int run_process(unsigned seed)
{
        struct worker workers[THREADS];
        cubby *host = open_home();
        cubby_provider *provider = open_provider(host);
        cubby_error err = {0};
        for (unsigned i = 0; i < THREADS; i++) {
                workers[i] = (struct worker){.provider = provider, .seed = seed * 1000 + i};
                if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
                        return 1;
        }
        for (unsigned i = 0; i < THREADS; i++)
                (void)pthread_join(workers[i].thread, NULL);
        cubby_provider_status status = {0};
        char *left = NULL;
        if (cubby_provider_shutdown(provider, 30000, &left, &err) < 0)
                violation("shutdown left", left == NULL ? err.message : left);
        if (cubby_provider_get_status(provider, &status, NULL) == 0 &&
                status.active + status.warm + status.reserved + status.keys + status.queued != 0)
                violation("the tables are not empty", "");
        cubby_free(left);
        cubby_provider_close(provider);
        cubby_close(host);
        return 0;
}

/* -------------------------------------------------------------- parent -- */

/* A box each in the list of leases that is there to be used. */
static void check_one_each(cubby *host)
{
        char *text = NULL;
        if (cubby_pool_status(host, "stress", &text, NULL) < 0)
                return;
        json_t *root = json_loads(text, 0, NULL);
        const json_t *pool = json_array_get(json_object_get(root, "pools"), 0);
        const json_t *boxes = json_object_get(pool, "boxes");
        for (size_t i = 0; i < json_array_size(boxes); i++)
                for (size_t j = i + 1; j < json_array_size(boxes); j++) {
                        const json_t *one = json_array_get(boxes, i);
                        const json_t *two = json_array_get(boxes, j);
                        const char *state[] = {json_string_value(json_object_get(one, "state")),
                                json_string_value(json_object_get(two, "state"))};
                        bool used = (*state[0] == 'a' || *state[0] == 'w') &&
                                (*state[1] == 'a' || *state[1] == 'w');
                        if (used &&
                                json_equal(json_object_get(one, "id"), json_object_get(two, "id")))
                                violation("two boxes for one key:", text);
                }
        json_decref(root);
        cubby_free(text);
}

static void kill_a_box(cubby *host, unsigned *seed)
{
        cubby_box_list *list = NULL;
        if (cubby_boxes(host, false, &list, NULL) < 0)
                return;
        if (list->count > 0) {
                const cubby_box_info *info = &list->boxes[(unsigned)rand_r(seed) % list->count];
                if (info->shim_pid > 1 && kill((pid_t)info->shim_pid, SIGKILL) == 0)
                        atomic_fetch_add(&board->kills, 1);
        }
        cubby_box_list_free(list);
}

static pid_t start_process(unsigned seed)
{
        pid_t child = fork();
        if (child == 0) {
                char text[32];
                (void)snprintf(text, sizeof text, "%u", seed);
                (void)execl("/proc/self/exe", "stress", "worker", board->home, text, NULL);
                _exit(1);
        }
        return child;
}

static void kill_a_process(pid_t *process, unsigned seed)
{
        (void)kill(*process, SIGKILL);
        (void)waitpid(*process, NULL, 0);
        atomic_fetch_add(&board->process_kills, 1);
        *process = start_process(seed);
}

/* Runs the two for so long. */
static void disturb(cubby *host, pid_t processes[PROCESSES], int seconds, unsigned *seed)
{
        int64_t end = now_ms() + seconds * 1000;
        int64_t next = now_ms() + seconds * 1000 / 4;
        unsigned started = PROCESSES;
        while (now_ms() < end) {
                check_one_each(host);
                if (rand_r(seed) % 3 == 0)
                        kill_a_box(host, seed);
                if (now_ms() >= next) {
                        kill_a_process(&processes[1], board->seed + ++started);
                        next = now_ms() + (seconds > 20 ? 10000 : seconds * 500);
                }
                (void)poll(NULL, 0, STEP_MS);
        }
}

/* A maker may die before he wrote whose the box is, and its name may have been the
 * second choice: the next acquire of the key has that box, and makes no other. */
static void check_orphan(cubby *host)
{
        static const char *const labels[] = {
                "cubby.pool=stress", "cubby.user=75", "cubby.thread=6b30", NULL};
        cubby_box_options options = CUBBY_INIT(cubby_box_options);
        cubby_acquire_options order = CUBBY_INIT(cubby_acquire_options);
        cubby_provider *provider = open_provider(host);
        cubby_acquired acquired = {0};
        cubby_box *orphan = NULL;
        cubby_error err = {0};
        options.image = "tiny";
        options.name = "stress-15f7765086003c6d-0123abcd"; /* of the user u's thread k0 */
        options.labels = labels;
        options.engine = "fake";
        options.no_main = true;
        options.auto_remove = true;
        order.user = "u";
        order.user_size = 1;
        order.thread = "k0";
        order.thread_size = 2;
        if (cubby_box_create(host, &options, &orphan, &err) < 0 ||
                cubby_box_start(orphan, &err) < 0 ||
                cubby_provider_acquire(provider, &order, &acquired, &err) < 0)
                violation("an orphan:", err.message);
        else if (strcmp(cubby_box_id(acquired.box), cubby_box_id(orphan)) != 0)
                violation("a second box beside the orphan of a key", "");
        cubby_box_close(acquired.box);
        cubby_box_close(orphan);
        if (cubby_provider_shutdown(provider, 30000, NULL, &err) < 0)
                violation("the shutdown after the orphan:", err.message);
        cubby_provider_close(provider);
}

static void check_rest(cubby *host)
{
        /* the boxes of those who were killed are the next one's */
        cubby_provider *provider = open_provider(host);
        cubby_error err = {0};
        if (cubby_provider_shutdown(provider, 30000, NULL, &err) < 0)
                violation("the last shutdown:", err.message);
        cubby_provider_close(provider);
        uint32_t left = 0;
        if (cubby_pool_drain(host, "stress", NULL, &left, &err) < 0 || left != 0)
                violation("leases are left", "");
        (void)cubby_gc(host, NULL, NULL);
        cubby_box_list *list = NULL;
        if (cubby_boxes(host, true, &list, &err) < 0)
                violation("listing:", err.message);
        for (size_t i = 0; list != NULL && i < list->count; i++)
                violation("a box is left:", list->boxes[i].name);
        cubby_box_list_free(list);
}

static void check_files(const char *folder, const char *prefix)
{
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", board->home, folder);
        DIR *dir = opendir(path);
        for (struct dirent *entry = dir == NULL ? NULL : readdir(dir); entry != NULL;
                entry = readdir(dir))
                if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
                        violation("a file is left:", entry->d_name);
        if (dir != NULL)
                (void)closedir(dir);
}

/* The home's processes are known by its path among their open files and arguments. */
static unsigned processes_of_home(void)
{
        unsigned count = 0;
        DIR *proc = opendir("/proc");
        for (struct dirent *entry = readdir(proc); entry != NULL; entry = readdir(proc)) {
                char path[300];
                char link[300];
                if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
                        atoi(entry->d_name) == getpid())
                        continue;
                (void)snprintf(path, sizeof path, "/proc/%s/fd", entry->d_name);
                DIR *fds = opendir(path);
                bool found = false;
                for (struct dirent *fd = fds == NULL ? NULL : readdir(fds); fd != NULL;
                        fd = readdir(fds)) {
                        char name[600];
                        (void)snprintf(name, sizeof name, "%s/%s", path, fd->d_name);
                        ssize_t size = readlink(name, link, sizeof link - 1);
                        found |= size > 0 && strncmp(link, board->home, strlen(board->home)) == 0;
                }
                if (fds != NULL)
                        (void)closedir(fds);
                count += found;
        }
        (void)closedir(proc);
        return count;
}

static int count_fds(void)
{
        DIR *dir = opendir("/proc/self/fd");
        int count = 0;
        while (readdir(dir) != NULL)
                count++;
        (void)closedir(dir);
        return count;
}

static void import_image(cubby *host)
{
        char path[100];
        char block[2048] = {0};
        (void)snprintf(path, sizeof path, "%s/empty.tar", board->home);
        FILE *file = fopen(path, "w");
        if (file == NULL || fwrite(block, 1, sizeof block, file) != sizeof block ||
                fclose(file) != 0)
                exit(1);
        cubby_import_options options = CUBBY_INIT(cubby_import_options);
        cubby_error err = {0};
        options.name = "tiny";
        if (cubby_image_import(host, path, &options, NULL, &err) < 0) {
                (void)fprintf(stderr, "stress: %s\n", err.message);
                exit(1);
        }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
        return remove(path);
}

static void report(void)
{
        (void)printf("stress: %lu acquires (%lu fresh), %lu cancels, %lu failures, %lu boxes and "
                     "%lu processes killed, %lu violations\n",
                board->acquires, board->fresh, board->cancels, board->failures, board->kills,
                board->process_kills, board->violations);
        for (int i = 0; i < CUBBY_E_CODE_MAX; i++)
                if (board->codes[i] > 0)
                        (void)printf("stress:   %lu failures: %s\n", board->codes[i],
                                cubby_code_name(i));
}

/* The board is a file of the home, for the processes that are started anew. */
static struct board *map_board(const char *home, bool make)
{
        char path[100];
        (void)snprintf(path, sizeof path, "%s.board", home);
        FILE *file = fopen(path, make ? "w+" : "r+");
        if (file == NULL || (make && ftruncate(fileno(file), sizeof(struct board)) < 0))
                exit(1);
        struct board *mapped =
                mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        (void)fclose(file);
        if (mapped == MAP_FAILED)
                exit(1);
        return mapped;
}

static int wait_for_all(const pid_t processes[PROCESSES])
{
        int failures = 0;
        for (int i = 0; i < PROCESSES; i++) {
                int status = 0;
                (void)waitpid(processes[i], &status, 0);
                if (status != 0)
                        failures++;
        }
        return failures;
}

static int run_all(int seconds)
{
        unsigned seed = board->seed;
        pid_t processes[PROCESSES];
        int fds = count_fds();
        cubby *host = open_home();
        import_image(host);
        check_orphan(host);
        for (unsigned i = 0; i < PROCESSES; i++)
                processes[i] = start_process(board->seed + i);
        disturb(host, processes, seconds, &seed);
        atomic_store(&board->stop, true);
        if (wait_for_all(processes) != 0)
                violation("a process failed", "(a sanitizer's report is above)");
        check_rest(host);
        cubby_close(host);
        if (count_fds() != fds)
                violation("descriptors are left", "");
        int64_t end = now_ms() + 15000; /* the keeper goes a while after its last client */
        while (processes_of_home() > 0 && now_ms() < end)
                (void)poll(NULL, 0, 50);
        if (processes_of_home() > 0)
                violation("processes are left", "");
        /* its machine ahead goes with it */
        check_files("boxes", "");
        check_files("tmp", "");
        check_files("locks", "pool-");
        return board->violations == 0 && board->acquires > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
        if (argc == 4 && strcmp(argv[1], "worker") == 0) {
                board = map_board(argv[2], false);
                return run_process((unsigned)strtoul(argv[3], NULL, 10));
        }
        char home[] = "/tmp/cubby-stress-XXXXXX";
        char path[100];
        int seconds = argc > 1 ? atoi(argv[1]) : SECONDS_DEFAULT;
        if (mkdtemp(home) == NULL || setenv("CUBBY_KEEPER_IDLE", "1", 1) != 0)
                return 1;
        board = map_board(home, true);
        board->seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : (unsigned)time(NULL);
        (void)snprintf(board->home, sizeof board->home, "%s", home);
        (void)printf("stress: %d s, seed %u\n", seconds, board->seed);
        (void)fflush(stdout);
        int result = run_all(seconds);
        report();
        (void)snprintf(path, sizeof path, "%s.board", home);
        (void)unlink(path);
        (void)nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        return result;
}
