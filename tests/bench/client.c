/*
 * The measuring client of the benchmark: one kind of operation, many times, a clock around each.
 *
 *   client [-n COUNT] [-j PROCESSES] [-c CPU] [-s SIZE] OPERATION PATH...
 *   client [-n COUNT] [-c CPU] run PROGRAM ARGUMENT...
 *
 * Prints one line of JSON: operations in all, median and 95th percentile of one in ns, ns from the common start to
 * the last end. Process i of -j works on the paths i, i + PROCESSES, …. Any error ends it with status 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE (1 << 20)
#define TAIL 4096

extern char **environ;

static size_t size = 200;
static char *data;

/* One operation: opened once with `flags` (or not at all), prepared outside the clock, stepped inside it. */
struct operation {
	const char *name;
	int flags;
	void (*prepare)(const char *path);
	void (*step)(int fd, const char *path);
};

struct shared {
	atomic_int waiting;
	atomic_int go;
	atomic_ullong start;
	uint64_t samples[];
};

static void die(const char *what, const char *path)
{
	fprintf(stderr, "client: %s %s: %s\n", what, path, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int opened(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC);
	if (fd < 0)
		die("open", path);
	return fd;
}

static void step_stat(int fd, const char *path)
{
	struct stat found;
	(void)fd;
	if (stat(path, &found))
		die("stat", path);
}

static void step_fstat(int fd, const char *path)
{
	struct stat found;
	if (fstat(fd, &found))
		die("fstat", path);
}

static void step_open(int fd, const char *path)
{
	(void)fd;
	if (close(opened(path, O_RDWR)))
		die("close", path);
}

static void step_pwrite(int fd, const char *path)
{
	if (pwrite(fd, data, size, 0) != (ssize_t)size)
		die("pwrite", path);
}

static void step_append(int fd, const char *path)
{
	if (write(fd, data, size) != (ssize_t)size)
		die("append", path);
}

static void step_sync(int fd, const char *path)
{
	step_append(fd, path);
	if (fdatasync(fd))
		die("fdatasync", path);
}

static void step_read(int fd, const char *path)
{
	ssize_t got;
	fd = opened(path, O_RDONLY);
	while ((got = read(fd, data, PIECE)) > 0)
		;
	if (got < 0)
		die("read", path);
	close(fd);
}

static void step_tail(int fd, const char *path)
{
	struct stat found;
	fd = opened(path, O_RDONLY);
	if (fstat(fd, &found) || pread(fd, data, TAIL, found.st_size > TAIL ? found.st_size - TAIL : 0) < 0)
		die("tail", path);
	close(fd);
}

/* Drops the file's clean pages from the page cache of the file system that it is opened on. */
static void prepare_drop(const char *path)
{
	int fd = opened(path, O_RDONLY);
	errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (errno)
		die("fadvise", path);
	close(fd);
}

static const struct operation operations[] = {
	{"stat", -1, NULL, step_stat},
	{"fstat", O_RDONLY, NULL, step_fstat},
	{"open", -1, NULL, step_open},
	{"pwrite", O_RDWR, NULL, step_pwrite},
	{"append", O_WRONLY | O_APPEND, NULL, step_append},
	{"append-sync", O_WRONLY | O_APPEND, NULL, step_sync},
	{"read", -1, NULL, step_read},
	{"read-cold", -1, prepare_drop, step_read},
	{"tail", -1, prepare_drop, step_tail},
};

static const struct operation *operation_named(const char *name)
{
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (!strcmp(operations[i].name, name))
			return &operations[i];
	fprintf(stderr, "client: no operation %s\n", name);
	exit(2);
}

/* `data` is a line that messages.jsonl accepts, `size` bytes with its newline. */
static void make_data(void)
{
	static const char head[] = "{\"role\":\"user\",\"content\":\"", tail[] = "\"}\n";
	data = malloc(size > PIECE ? size : PIECE);
	if (!data || size < sizeof head + sizeof tail) {
		fprintf(stderr, "client: no line of %zu bytes\n", size);
		exit(2);
	}
	memset(data, 'x', size);
	memcpy(data, head, sizeof head - 1);
	memcpy(data + size - (sizeof tail - 1), tail, sizeof tail - 1);
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("sched_setaffinity", "");
}

static void wait_for_start(struct shared *shared, int processes)
{
	if (atomic_fetch_add(&shared->waiting, 1) + 1 == processes) {
		atomic_store(&shared->start, now());
		atomic_store(&shared->go, 1);
	}
	while (!atomic_load(&shared->go))
		sched_yield();
}

/* One process: `count` passes over its paths. Returns through its exit status. */
static void work(const struct operation *operation, struct shared *shared, uint64_t *samples, long count, int processes,
		 char **paths, int first, int step)
{
	int started = 0;
	for (char **path = paths + first; path < paths + step && *path; path += processes) {
		int fd = operation->flags < 0 ? -1 : opened(*path, operation->flags);

		if (!started++)
			wait_for_start(shared, processes);
		for (long i = 0; i < count; i++) {
			uint64_t begin;

			if (operation->prepare)
				operation->prepare(*path);
			begin = now();
			operation->step(fd, *path);
			*samples++ = now() - begin;
		}
		if (fd >= 0 && close(fd))
			die("close", *path);
	}
	_exit(0);
}

static void run(const posix_spawn_file_actions_t *actions, char **command)
{
	pid_t child;
	int status;
	errno = posix_spawn(&child, command[0], actions, NULL, command, environ);
	if (errno)
		die("spawn", command[0]);
	if (waitpid(child, &status, 0) != child || status)
		die("failed:", command[0]);
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void print(uint64_t *samples, size_t count, uint64_t wall)
{
	qsort(samples, count, sizeof *samples, by_size);
	printf("{\"count\":%zu,\"median_ns\":%llu,\"p95_ns\":%llu,\"wall_ns\":%llu}\n", count,
	       (unsigned long long)samples[count / 2], (unsigned long long)samples[count * 95 / 100],
	       (unsigned long long)wall);
}

static void *shared_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	return memory != MAP_FAILED ? memory : (die("mmap", ""), NULL);
}

static int measure_commands(long count, char **command)
{
	uint64_t *samples = shared_memory((size_t)count * sizeof *samples), start = now();
	posix_spawn_file_actions_t quiet;
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	for (long i = 0; i < count; i++) {
		uint64_t begin = now();

		run(&quiet, command);
		samples[i] = now() - begin;
	}
	print(samples, (size_t)count, now() - start);
	return 0;
}

static int measure(const struct operation *operation, long count, int processes, char **paths, int number)
{
	/* Every process needs as many paths as the others. */
	size_t total = (size_t)(number - number % processes) * (size_t)count;
	struct shared *shared = shared_memory(sizeof *shared + total * sizeof(uint64_t));
	int failed = 0, status;
	for (int i = 0; i < processes; i++)
		if (!fork())
			work(operation, shared, shared->samples + (total / (size_t)processes) * (size_t)i, count, processes,
			     paths, i, number - number % processes);
	while (wait(&status) > 0)
		failed |= status;
	if (failed || !total)
		return 1;
	print(shared->samples, total, now() - atomic_load(&shared->start));
	return 0;
}

int main(int argc, char **argv)
{
	long count = 1;
	int option, processes = 1;
	while ((option = getopt(argc, argv, "+n:j:c:s:")) != -1)
		switch (option) {
		case 'n': count = atol(optarg); break;
		case 'j': processes = atoi(optarg); break;
		case 'c': pin(atoi(optarg)); break;
		case 's': size = (size_t)atol(optarg); break;
		default: return 2;
		}
	if (argc - optind < 2 || count < 1 || processes < 1)
		return 2;
	make_data();
	if (!strcmp(argv[optind], "run"))
		return measure_commands(count, argv + optind + 1);
	return measure(operation_named(argv[optind]), count, processes, argv + optind + 1, argc - optind - 1);
}
