/*
 * Loaded before libc (LD_PRELOAD), it notes how much of each append-only file is on disk: the length that the file had
 * before its last successful fsync or fdatasync, as text in a file beside it. A killed process loses nothing that it has
 * written, since the kernel keeps it. A machine that loses its power loses what is not noted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(int fd, long long length) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t end = readlink(link, path, sizeof path - 16);
    if (end <= 0) return;
    path[end] = 0;
    if (!strstr(path, ".incr.aof")) return;
    strcat(path, ".synced");
    int notes = open(path, O_CREAT | O_WRONLY, 0644);
    if (notes < 0) return;
    char text[32];
    int size = snprintf(text, sizeof text, "%020lld\n", length);
    if (pwrite(notes, text, size, 0) != size) unlink(path);
    close(notes);
}

static int sync_and_note(const char *name, int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    struct stat before;
    int is_known = fstat(fd, &before) == 0;
    int result = real(fd);
    if (result == 0 && is_known) note(fd, before.st_size);
    return result;
}

int fsync(int fd) { return sync_and_note("fsync", fd); }
int fdatasync(int fd) { return sync_and_note("fdatasync", fd); }
