// Loads a module into a server as if that could write snapshots without a fork, as Valkey 9.2 can: a key that is being
// saved does not open for writing, and values are saved on another thread. The first argument is the path of the module.
// TEST_SAVED_KEY names a file with the key that is being saved.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITE 2
#define ERR 1

typedef int (*GetApi)(const char *name, void *function);
typedef int (*OnLoad)(void *ctx, void **argv, int argc);
typedef void (*Save)(void *io, void *value);

// The fields of a type, each of them as long as a pointer, up to the fifth version.
enum { RDB_SAVE = 2, FIELDS = 19 };

static GetApi get_api_of_server;
static void *(*open_key)(void *ctx, void *name, int mode);
static void *(*create_data_type)(void *ctx, const char *name, int encoding, void **methods);
static const char *(*string_ptr_len)(const void *string, size_t *len);
static Save save;

static int is_being_saved(const void *name) {
    char saved[256];
    int file = open(getenv("TEST_SAVED_KEY"), O_RDONLY);
    ssize_t saved_len = read(file, saved, sizeof saved);
    close(file);
    size_t len;
    const char *key = string_ptr_len(name, &len);
    return saved_len > 0 && (size_t)saved_len == len && memcmp(saved, key, len) == 0;
}

static void *open_unless_saved(void *ctx, void *name, int mode) {
    return mode & WRITE && is_being_saved(name) ? NULL : open_key(ctx, name, mode);
}

struct Call {
    void *io, *value;
};

static void *run(void *call) {
    save(((struct Call *)call)->io, ((struct Call *)call)->value);
    return NULL;
}

static void save_on_another_thread(void *io, void *value) {
    struct Call call = {io, value};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, &call) != 0 || pthread_join(thread, NULL) != 0) abort();
}

static void *create_with_thread(void *ctx, const char *name, int encoding, void **methods) {
    void *copy[FIELDS];
    memcpy(copy, methods, sizeof copy);
    save = (Save)copy[RDB_SAVE];
    copy[RDB_SAVE] = (void *)save_on_another_thread;
    return create_data_type(ctx, name, encoding, copy);
}

static int get_api(const char *name, void *function) {
    int status = get_api_of_server(name, function);
    void **found = function;
    if (strcmp(name, "RedisModule_OpenKey") == 0) {
        open_key = *found;
        *found = (void *)open_unless_saved;
    } else if (strcmp(name, "RedisModule_CreateDataType") == 0) {
        create_data_type = *found;
        *found = (void *)create_with_thread;
    } else if (strcmp(name, "RedisModule_StringPtrLen") == 0) {
        string_ptr_len = *found;
    }
    return status;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    GetApi *of_ctx = ctx;
    get_api_of_server = *of_ctx;
    if (argc < 1) return ERR;
    const char *(*string)(const void *, size_t *);
    get_api_of_server("RedisModule_StringPtrLen", &string);
    void *module = dlopen(string(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    if (!module) return ERR;
    OnLoad load = (OnLoad)dlsym(module, "RedisModule_OnLoad");
    if (!load) return ERR;
    *of_ctx = get_api;
    int status = load(ctx, argv + 1, argc - 1);
    *of_ctx = get_api_of_server;
    return status;
}
