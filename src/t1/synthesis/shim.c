/* Another clock and another user for programs that ask libc: preloaded into a trial, never into T1 itself.
   T1_SHIFT_S: seconds to add to the wall clock. T1_UID: what getuid and its sisters say. Unset means untouched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long shift(void) {
  const char *text = getenv("T1_SHIFT_S");
  return text ? atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, at);
  if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI)) at->tv_sec += shift();
  return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

int timespec_get(struct timespec *at, int base) {
  return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

#define IDENTITY(type, name) \
  type name(void) { \
    static type (*real)(void); \
    const char *text = getenv("T1_UID"); \
    if (text) return (type)atoi(text); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    return real(); \
  }
IDENTITY(uid_t, getuid)
IDENTITY(uid_t, geteuid)
IDENTITY(gid_t, getgid)
IDENTITY(gid_t, getegid)

/* The other user owns what the real one owns, so that git and `test -O` see nothing odd. */
#define OWNED(field_uid, field_gid) \
  const char *text = getenv("T1_UID"); \
  if (!status && text && field_uid == (uid_t)syscall(SYS_getuid)) field_uid = field_gid = (uid_t)atoi(text);
#define STAT(type, name, parameters, arguments) \
  int name parameters { \
    static int (*real) parameters; \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    int status = real arguments; \
    OWNED(at->st_uid, at->st_gid) \
    return status; \
  }
#define STATS(type, stat, lstat, fstat, fstatat) \
  STAT(type, stat, (const char *restrict path, type *restrict at), (path, at)) \
  STAT(type, lstat, (const char *restrict path, type *restrict at), (path, at)) \
  STAT(type, fstat, (int file, type *at), (file, at)) \
  STAT(type, fstatat, (int folder, const char *restrict path, type *restrict at, int flags), (folder, path, at, flags))
STATS(struct stat, stat, lstat, fstat, fstatat)
STATS(struct stat64, stat64, lstat64, fstat64, fstatat64)

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict at) {
  static int (*real)(int, const char *restrict, int, unsigned, struct statx *restrict);
  if (!real) real = dlsym(RTLD_NEXT, "statx");
  int status = real(folder, path, flags, mask, at);
  OWNED(at->stx_uid, at->stx_gid)
  return status;
}
