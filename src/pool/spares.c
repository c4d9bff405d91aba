/* SPDX-License-Identifier: Apache-2.0 */

/* A provider's share in the spares of its template, which belong to the home. */
#include "pool/provider.h"

#include "base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define END_WAIT_MS 3000
#define END_PAUSE_MS 20
#define LOCK_NAME_SIZE 80

static void lock_name(const char *key, char ret[LOCK_NAME_SIZE])
{
        (void)snprintf(ret, LOCK_NAME_SIZE, "spares-%.64s", key);
}

/* Says that this provider uses them. With the lock held. */
static void join(cubby_provider *provider, const char *key)
{
        char name[LOCK_NAME_SIZE];
        if (provider->spares_fd >= 0 && strcmp(provider->spares_key, key) == 0)
                return;
        spares_forget(provider);
        lock_name(key, name);
        if (home_lock(provider->host->home, name, false, 0, &provider->spares_fd, NULL) == 0)
                memcpy(provider->spares_key, key, sizeof provider->spares_key);
}

void spares_want(cubby_provider *provider, cubby_box *box, bool was_spare)
{
        char key[TEMPLATE_KEY_SIZE];
        AUTO(template) struct template *template = NULL;
        (void)pthread_mutex_lock(&provider->spares_lock);
        bool known = provider->spares_fd >= 0;
        (void)pthread_mutex_unlock(&provider->spares_lock);
        /* the keeper refills: a claim has nothing to say */
        if ((was_spare && known) || saved_key(provider->host, &box->config, key, NULL) < 0)
                return;
        (void)pthread_mutex_lock(&provider->spares_lock);
        join(provider, key);
        (void)pthread_mutex_unlock(&provider->spares_lock);
        cubby_error problem = {0};
        if (template_open(provider->host->home, key, &template, NULL) < 0 ||
                template_wanted(template->dir_fd) >= provider->config.spares)
                return;
        if (template_set_pools_wanted(template->dir_fd, provider->config.spares, &problem) < 0)
                log_line(&provider->host->log, LOG_WARNING, "no spares: %s", problem.message);
        else if (saved_tell(template, false, NULL) < 0)
                saved_keep(provider->host, &box->config);
}

void spares_forget(cubby_provider *provider)
{
        home_unlock(provider->spares_fd);
        provider->spares_fd = -1;
}

static void end_spares(cubby_provider *provider)
{
        AUTO(template) struct template *template = NULL;
        if (template_open(provider->host->home, provider->spares_key, &template, NULL) < 0 ||
                template_set_pools_wanted(template->dir_fd, 0, NULL) < 0 ||
                saved_tell(template, false, NULL) < 0)
                return;
        uint32_t wanted = template_wanted(template->dir_fd);
        int64_t deadline = deadline_after_ms(END_WAIT_MS);
        while (spare_count(template->dir_fd, SPARE_WARM) > wanted && deadline_left_ms(deadline) > 0)
                (void)poll(NULL, 0, END_PAUSE_MS);
}

void spares_leave(cubby_provider *provider)
{
        char name[LOCK_NAME_SIZE];
        AUTO_LOCK int alone = -1;
        (void)pthread_mutex_lock(&provider->spares_lock);
        if (provider->spares_fd >= 0) {
                spares_forget(provider);
                lock_name(provider->spares_key, name);
                if (home_lock(provider->host->home, name, true, 0, &alone, NULL) == 0)
                        end_spares(provider);
        }
        (void)pthread_mutex_unlock(&provider->spares_lock);
}
