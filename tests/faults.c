/* Counts a process's calls that change files within one folder, and fails or ends it at the n-th.

   Loaded by LD_PRELOAD; tests/faults.py compiles it and chooses the folder and the call by `arm`.
   It stands between the program (Python's and TensorFlow's code) and the C library. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum outcome { KILL, TORN, FULL, BROKEN };  /* As in tests/faults.py. */

static char folder[PATH_MAX];
static long chosen;
static enum outcome outcome;
static int record = -1;
static atomic_long calls;

void arm(const char *path, long number, int what, int descriptor) {
  strcpy(folder, path);
  chosen = number;
  outcome = what;
  record = descriptor;
}

static int within(const char *path) {
  size_t length = strlen(folder);
  return length && path && !strncmp(path, folder, length) && path[length] == '/';
}

/* The file that a descriptor writes, or NULL if it lies elsewhere. */
static const char *file_of(int descriptor, char *name) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = *folder ? readlink(link, name, PATH_MAX - 1) : -1;
  if (length < 0) return NULL;
  name[length] = 0;
  return within(name) ? name : NULL;
}

/* Counts a call. 0: do it; 1: fail, errno is set; 2: do half of it, and end the process. */
static int meet(const char *call, const char *path, int takes_room) {
  char whole[3 * PATH_MAX + 3];
  if (path && *path != '/' && *folder) {
    strcpy(whole, getcwd(whole, PATH_MAX) ? whole : "");
    path = strcat(strcat(whole, "/"), path);
  }
  if (!within(path)) return 0;
  long number = atomic_fetch_add(&calls, 1) + 1;
  if (record >= 0) dprintf(record, "%ld %s %s\n", number, call, path + strlen(folder) + 1);
  if (!chosen || number < chosen) return 0;
  if (outcome == FULL) {  /* From then on. */
    errno = ENOSPC;
    return takes_room != 0;
  }
  if (number > chosen) return 0;
  if (outcome == BROKEN) {
    errno = EIO;
    return 1;
  }
  if (outcome == TORN && takes_room == 2) return 2;
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) (((flags)&O_ACCMODE) != O_RDONLY)

#define OPEN(name)                                              \
  int name(const char *path, int flags, ...) {                  \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    int mode = va_arg(rest, int);                               \
    va_end(rest);                                               \
    if (WRITES(flags) && meet("open", path, 1)) return -1;      \
    return NEXT(name)(path, flags, mode);                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                            \
  int name(int at, const char *path, int flags, ...) {          \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    int mode = va_arg(rest, int);                               \
    va_end(rest);                                               \
    if (WRITES(flags) && meet("open", path, 1)) return -1;      \
    return NEXT(name)(at, path, flags, mode);                   \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                           \
  FILE *name(const char *path, const char *mode) {                            \
    if (strpbrk(mode, "wa+") && meet("open", path, 1)) return NULL;           \
    return NEXT(name)(path, mode);                                            \
  }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int descriptor, const void *bytes, size_t size) {
  char name[PATH_MAX];
  int met = meet("write", file_of(descriptor, name), 2);
  if (met == 1) return -1;
  ssize_t written = NEXT(write)(descriptor, bytes, met ? size / 2 : size);
  if (met == 2) kill(getpid(), SIGKILL);
  return written;
}

size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) {
  char name[PATH_MAX];
  int met = meet("write", file_of(fileno(file), name), 2);
  if (met == 1) return 0;
  size_t written = NEXT(fwrite)(bytes, size, met ? count / 2 : count, file);
  if (met == 2) {
    fflush(file);
    kill(getpid(), SIGKILL);
  }
  return written;
}

ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
  char name[PATH_MAX];
  int met = meet("write", file_of(to, name), 2);
  if (met == 1) return -1;
  ssize_t written = NEXT(sendfile)(to, from, offset, met ? size / 2 : size);
  if (met == 2) kill(getpid(), SIGKILL);
  return written;
}

#define OF_STREAM(name)                                            \
  int name(FILE *file) {                                           \
    char path[PATH_MAX];                                           \
    if (file && meet(#name, file_of(fileno(file), path), 1)) return EOF; \
    return NEXT(name)(file);                                       \
  }
OF_STREAM(fflush)
OF_STREAM(fclose)

#define OF_DESCRIPTOR(name)                                        \
  int name(int descriptor) {                                       \
    char path[PATH_MAX];                                           \
    if (meet(#name, file_of(descriptor, path), 1)) return -1;      \
    return NEXT(name)(descriptor);                                 \
  }
OF_DESCRIPTOR(fsync)
OF_DESCRIPTOR(fdatasync)

#define TRUNCATE(name)                                              \
  int name(int descriptor, off_t length) {                          \
    char path[PATH_MAX];                                            \
    if (meet("truncate", file_of(descriptor, path), 0)) return -1;  \
    return NEXT(name)(descriptor, length);                          \
  }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char *old, const char *new) {
  char both[2 * PATH_MAX + 2];
  snprintf(both, sizeof both, "%s %s", new, old);
  return meet("rename", both, 0) ? -1 : NEXT(rename)(old, new);
}

#define OF_PATH(name) \
  int name(const char *path) { return meet(#name, path, 0) ? -1 : NEXT(name)(path); }
OF_PATH(unlink)
OF_PATH(rmdir)

int unlinkat(int at, const char *path, int flags) {
  char name[PATH_MAX];
  const char *folder_of = *path == '/' ? path : file_of(at, name);
  return meet("unlink", folder_of, 0) ? -1 : NEXT(unlinkat)(at, path, flags);
}

int mkdir(const char *path, mode_t mode) {
  return meet("mkdir", path, 1) ? -1 : NEXT(mkdir)(path, mode);
}
