/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include "base/cleanup.h"
#include "boot.h"
#include "procs.h"

#include <errno.h>
#include <linux/random.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#define THREAD_STACK (256U * 1024U)

static void finish(struct agent *agent, struct job *job)
{
        const uint64_t one = 1;
        queue_push(&agent->done, job);
        (void)!write(agent->wake_fd, &one, sizeof one);
}

static void run_exec(struct agent *agent, struct job *job)
{
        struct message_exec message;
        struct slice payload = {job->payload.data, job->payload.size};
        if (!message_exec_decode(payload, &message)) {
                (void)cubby_error_set(&job->error, CUBBY_E_INVALID, "EXEC has a bad layout");
        } else {
                struct slot *slot = cgroups_take(&agent->cgroups, &job->error);
                atomic_store(&job->slot, slot);
                if (slot != NULL)
                        (void)spawn_command(
                                &agent->spawner, &message, slot, &job->spawned, &job->error);
        }
        message_exec_free(&message);
}

static void run_resume(struct agent *agent, struct job *job)
{
        struct message_resume message;
        struct message_resumed resumed;
        struct slice payload = {job->payload.data, job->payload.size};
        if (!message_resume_decode(payload, &message)) {
                (void)cubby_error_set(&job->error, CUBBY_E_INVALID, "RESUME has a bad layout");
                return;
        }
        job->session = message.nonce;
        if (resume_apply(&agent->identity, &message, &agent->workload, &agent->cgroups,
                    &agent->spawner, &resumed, &job->error) == 0 &&
                !message_resumed_encode(&job->reply, &resumed))
                (void)cubby_error_no_memory(&job->error);
        explicit_bzero(job->payload.data, job->payload.size);
}

static void *spawner_main(void *data)
{
        struct agent *agent = data;
        struct job *ready = job_new(JOB_RESUME, 0, NULL, 0);
        if (ready == NULL)
                power_off();
        if (workload_enter(&agent->workload, &agent->cgroups, &agent->console.log, &ready->error) ==
                0)
                (void)spawner_init(&agent->spawner, &ready->error);
        finish(agent, ready);
        for (;;) {
                struct job *job = queue_wait(&agent->spawner_jobs);
                if (job == NULL) { /* a command has ended, and its end is told */
                        spawner_prepare(&agent->spawner);
                        cgroups_tidy(&agent->cgroups);
                        continue;
                }
                if (job->kind == JOB_RESUME)
                        run_resume(agent, job);
                else
                        run_exec(agent, job);
                finish(agent, job);
        }
}

static _Noreturn void run_power_off(void)
{
        sync();
        /* With the workload gone the disk can be left clean; if not, its journal is. */
        (void)mount(NULL, BOOT_BOX, NULL, MS_REMOUNT | MS_RDONLY, NULL);
        (void)mount(NULL, BOOT_UPPER, NULL, MS_REMOUNT | MS_RDONLY, NULL);
        power_off();
}

static void *worker_main(void *data)
{
        struct agent *agent = data;
        for (;;) {
                struct job *job = queue_wait(&agent->worker_jobs);
                switch (job->kind) {
                case JOB_SYNC:
                        sync();
#ifdef AGENT_TEST_UNSEEDED
                        /* the control: no clone begins with a key that the kernel replaces at
                         * the first draw because of its age */
                        (void)ioctl(agent->workload.random_fd, RNDRESEEDCRNG);
#endif
                        break;
                case JOB_PROCESSES:
                        (void)procs_list(agent->workload.proc_fd, &job->reply, &job->error);
                        break;
                case JOB_METRICS:
                        (void)procs_metrics(
                                agent->workload.proc_fd, &agent->cgroups, &job->reply, &job->error);
                        break;
                case JOB_POWER_OFF:
                        run_power_off();
                case JOB_EXEC:
                case JOB_RESUME:
                        break; /* the spawner's */
                }
                finish(agent, job);
        }
}

static int start(void *(*entry)(void *), struct agent *agent, cubby_error *err)
{
        pthread_t thread;
        pthread_attr_t attributes;
        (void)pthread_attr_init(&attributes);
        (void)pthread_attr_setstacksize(&attributes, THREAD_STACK);
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        int result = pthread_create(&thread, &attributes, entry, agent);
        (void)pthread_attr_destroy(&attributes);
        return result == 0 ? 0 : cubby_error_errno(err, result, "starting a thread");
}

int threads_start(struct agent *agent, cubby_error *err)
{
        queue_init(&agent->spawner_jobs);
        queue_init(&agent->worker_jobs);
        queue_init(&agent->done);
        agent->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (agent->wake_fd < 0)
                return cubby_error_errno(err, errno, "making an event descriptor");
        /* The worker first: a thread that has left the pid namespace can make no other. */
        if (start(worker_main, agent, err) < 0 || start(spawner_main, agent, err) < 0)
                return -1;
        struct job *ready = queue_wait(&agent->done);
        int result = ready->error.code == CUBBY_OK ? 0 : -1;
        if (result < 0 && err != NULL)
                *err = ready->error;
        job_free(ready);
        if (result < 0)
                return -1;
        return files_init(
                &agent->files, agent->wake_fd, &agent->workload, &agent->console.log, err);
}
