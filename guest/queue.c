/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <stdlib.h>

#define JOB_REPLY_MAX FRAME_FROM_GUEST_MAX

struct job *job_new(enum job_kind kind, uint64_t stream, const void *payload, size_t size)
{
        struct job *job = calloc(1, sizeof *job);
        if (job == NULL)
                return NULL;
        job->kind = kind;
        job->stream = stream;
        job->spawned = SPAWNED_NONE;
        buffer_init(&job->payload, FRAME_TO_GUEST_MAX);
        buffer_init(&job->reply, JOB_REPLY_MAX);
        if (!buffer_append(&job->payload, payload, size)) {
                job_free(job);
                return NULL;
        }
        return job;
}

void job_free(struct job *job)
{
        if (job == NULL)
                return;
        buffer_free(&job->payload);
        buffer_free(&job->reply);
        spawned_close(&job->spawned);
        free(job);
}

void queue_init(struct queue *queue)
{
        *queue = (struct queue){
                .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};
        queue->last = &queue->first;
}

void queue_push(struct queue *queue, struct job *job)
{
        job->next = NULL;
        (void)pthread_mutex_lock(&queue->lock);
        *queue->last = job;
        queue->last = &job->next;
        (void)pthread_mutex_unlock(&queue->lock);
        (void)pthread_cond_signal(&queue->filled);
}

static struct job *take_first(struct queue *queue)
{
        struct job *job = queue->first;
        if (job == NULL)
                return NULL;
        queue->first = job->next;
        if (queue->first == NULL)
                queue->last = &queue->first;
        job->next = NULL;
        return job;
}

struct job *queue_wait(struct queue *queue)
{
        struct job *job;
        (void)pthread_mutex_lock(&queue->lock);
        while ((job = take_first(queue)) == NULL && !queue->idle_work)
                (void)pthread_cond_wait(&queue->filled, &queue->lock);
        if (job == NULL)
                queue->idle_work = false;
        (void)pthread_mutex_unlock(&queue->lock);
        return job;
}

void queue_nudge(struct queue *queue)
{
        (void)pthread_mutex_lock(&queue->lock);
        queue->idle_work = true;
        (void)pthread_mutex_unlock(&queue->lock);
        (void)pthread_cond_signal(&queue->filled);
}

struct job *queue_poll(struct queue *queue)
{
        (void)pthread_mutex_lock(&queue->lock);
        struct job *job = take_first(queue);
        (void)pthread_mutex_unlock(&queue->lock);
        return job;
}
