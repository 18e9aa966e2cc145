// The clock of a process, moved: preloaded into redis-server, it adds to the time of day what the file of the
// environment variable TEST_CLOCK holds, in microseconds, a 64-bit number in the machine's byte order. It allocates
// nothing, as allocators ask for the time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void start(void) {
  const char *name = getenv("TEST_CLOCK");
  int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) {
    return;
  }
  void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (p != MAP_FAILED) {
    offset = p;
  }
}

static int64_t now(void) {
  struct timespec ts;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
  return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 + (offset ? *offset : 0);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
  (void)tz;
  int64_t us = now();
  tv->tv_sec = us / 1000000;
  tv->tv_usec = us % 1000000;
  return 0;
}

time_t time(time_t *t) {
  time_t s = now() / 1000000;
  if (t) {
    *t = s;
  }
  return s;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) {
    return syscall(SYS_clock_gettime, id, ts);
  }
  int64_t us = now();
  ts->tv_sec = us / 1000000;
  ts->tv_nsec = us % 1000000 * 1000;
  return 0;
}
