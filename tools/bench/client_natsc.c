/* The workloads on nats.c. Arguments: work url count size subject stream batch-or-window ack-or-storage.
   Says "ready" when a feeder may begin, and ends with one line of JSON, as the other clients do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <nats/nats.h>

static const char *work, *subject, *stream, *option;
static int count, size, number;
static char *payload;
static double started, cpu_before, *times;
static natsConnection *nc;
static jsCtx *js;

static void check(natsStatus status, const char *what)
{
    if (status == NATS_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, natsStatus_GetText(status));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void begin(void)
{
    cpu_before = cpu();
    started = now();
}

static int ascending(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void end(void)
{
    double wall = now() - started, used = cpu() - cpu_before, rss = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            rss = atof(line + 6) / 1024;
    printf("{\"wall\": %.6f, \"cpu\": %.6f, \"rss\": %.1f", wall, used, rss);
    if (times != NULL)
    {
        qsort(times, count, sizeof *times, ascending);
        printf(", \"p50\": %.1f, \"p99\": %.1f", times[count / 2] * 1e6, times[count * 99 / 100] * 1e6);
    }
    printf("}\n");
}

static void create_stream(const char *storage)
{
    const char *subjects[] = {subject};
    jsStreamConfig config;
    jsStreamConfig_Init(&config);
    config.Name = stream;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Storage = strcmp(storage, "file") == 0 ? js_FileStorage : js_MemoryStorage;
    check(js_AddStream(NULL, js, &config, NULL, NULL), "add stream");
}

static void core_publish(void)
{
    begin();
    for (int i = 0; i < count; i++)
        check(natsConnection_Publish(nc, subject, payload, size), "publish");
    check(natsConnection_FlushTimeout(nc, 60000), "flush");
    end();
}

static void core_subscribe(void)
{
    natsSubscription *sub;
    natsMsg *msg;
    int64_t dropped = 0;
    check(natsConnection_SubscribeSync(&sub, nc, subject), "subscribe");
    check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    check(natsConnection_Flush(nc), "flush");
    puts("ready");
    for (int i = 0; i < count; i++)
    {
        check(natsSubscription_NextMsg(&msg, sub, 60000), "next");
        natsMsg_Destroy(msg);
        if (i == 0)
            begin();
    }
    natsSubscription_GetDropped(sub, &dropped);
    check(dropped ? NATS_SLOW_CONSUMER : NATS_OK, "dropped");
    end();
}

static void one_by_one(void)
{
    kvStore *kv = NULL;
    natsMsg *reply = NULL;
    kvEntry *entry;
    natsStatus status;
    if (strcmp(work, "request") == 0)
    {
        for (int i = 0; i < 100 && natsConnection_Request(&reply, nc, subject, payload, size, 500) != NATS_OK; i++)
            nats_Sleep(20);
        natsMsg_Destroy(reply);
    }
    else if (strcmp(work, "publish_sync") == 0)
        create_stream("memory");
    else
    {
        kvConfig config;
        kvConfig_Init(&config);
        config.Bucket = stream;
        config.StorageType = js_MemoryStorage;
        check(js_CreateKeyValue(&kv, js, &config), "bucket");
        check(kvStore_Put(NULL, kv, "key", payload, size), "put");
    }
    times = malloc(count * sizeof *times);
    begin();
    for (int i = 0; i < count; i++)
    {
        double start = now();
        if (kv == NULL && work[0] == 'r')
        {
            status = natsConnection_Request(&reply, nc, subject, payload, size, 5000);
            natsMsg_Destroy(reply);
        }
        else if (kv == NULL)
            status = js_Publish(NULL, js, subject, payload, size, NULL, NULL);
        else if (strcmp(work, "kv_get") == 0)
        {
            status = kvStore_Get(&entry, kv, "key");
            kvEntry_Destroy(entry);
        }
        else
            status = kvStore_Put(NULL, kv, "key", payload, size);
        check(status, work);
        times[i] = now() - start;
    }
    end();
}

static void publish_async(void)
{
    create_stream(option);
    begin();
    for (int i = 0; i < count; i++)
        check(js_PublishAsync(js, subject, payload, size, NULL), "publish async");
    check(js_PublishAsyncComplete(js, NULL), "complete");
    end();
}

static void fetch(void)
{
    natsSubscription *sub;
    natsMsgList list;
    char durable[32];
    jsSubOptions options;
    snprintf(durable, sizeof durable, "F%d", getpid());
    jsSubOptions_Init(&options);
    options.Stream = stream;
    options.Config.AckPolicy = js_AckExplicit;
    options.Config.MaxAckPending = -1;
    check(js_PullSubscribe(&sub, js, subject, durable, NULL, &options, NULL), "pull subscribe");
    begin();
    for (int got = 0; got < count; got += list.Count, natsMsgList_Destroy(&list))
    {
        check(natsSubscription_Fetch(&list, sub, number, 10000, NULL), "fetch");
        for (int i = 0; i < list.Count; i++)
            check(natsMsg_Ack(list.Msgs[i], NULL), "ack");
    }
    check(natsConnection_FlushTimeout(nc, 60000), "flush");
    end();
}

/* It has no messages() on pull consumers in every version: a push subscription, as for nats-py. */
static void messages(void)
{
    natsSubscription *sub;
    natsMsg *msg;
    jsSubOptions options;
    bool acks = strcmp(option, "explicit") == 0;
    jsSubOptions_Init(&options);
    options.Stream = stream;
    options.ManualAck = true;
    options.Ordered = strcmp(work, "ordered") == 0;
    if (!options.Ordered)
        options.Config.AckPolicy = acks ? js_AckExplicit : js_AckNone;
    if (acks)
        options.Config.MaxAckPending = -1;
    begin();
    check(js_SubscribeSync(&sub, js, subject, NULL, &options, NULL), "subscribe");
    check(natsSubscription_SetPendingLimits(sub, -1, -1), "limits");
    for (int i = 0; i < count; i++)
    {
        check(natsSubscription_NextMsg(&msg, sub, 60000), "next");
        if (acks)
            check(natsMsg_Ack(msg, NULL), "ack");
        natsMsg_Destroy(msg);
    }
    check(natsConnection_FlushTimeout(nc, 60000), "flush");
    end();
}

int main(int argc, char **argv)
{
    jsOptions options;
    if (argc != 9)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    work = argv[1];
    count = atoi(argv[3]);
    size = atoi(argv[4]);
    subject = argv[5];
    stream = argv[6];
    number = atoi(argv[7]);
    option = argv[8];
    payload = calloc(1, size + 1);
    check(natsConnection_ConnectTo(&nc, argv[2]), "connect");
    jsOptions_Init(&options);
    options.PublishAsync.MaxPending = number;
    check(natsConnection_JetStream(&js, nc, &options), "JetStream");
    if (strcmp(work, "core_publish") == 0)
        core_publish();
    else if (strcmp(work, "core_subscribe") == 0)
        core_subscribe();
    else if (strcmp(work, "publish_async") == 0)
        publish_async();
    else if (strcmp(work, "fetch") == 0)
        fetch();
    else if (strcmp(work, "messages") == 0 || strcmp(work, "consume") == 0 || strcmp(work, "ordered") == 0)
        messages();
    else
        one_by_one();
    return 0;
}
