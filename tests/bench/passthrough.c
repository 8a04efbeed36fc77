/*
 * The least that a C file system on libfuse's low-level interface costs a request: one directory shown elsewhere.
 *
 *   passthrough DIRECTORY MOUNTPOINT
 *
 * In the foreground, one thread, timeouts of 0 and direct_io, so that every call of the client is a request; mounted
 * with ctxfs's options, so that it is the same requests. A baseline of the benchmark and nothing else: no listings, no
 * changes of names.
 */
#define FUSE_USE_VERSION 34
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKETS 1024

/* A file that the kernel knows; its number is its address, that of the root is FUSE_ROOT_ID. */
struct node {
	struct node *next;
	dev_t device;
	ino_t inode;
	uint64_t lookups;
	int fd;
};

static struct node root;
static struct node *buckets[BUCKETS];

static struct node *node_of(fuse_ino_t number)
{
	return number == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)number;
}

static struct node **bucket_of(dev_t device, ino_t inode)
{
	return &buckets[(device ^ inode) % BUCKETS];
}

static struct node *found_or_made(int fd, const struct stat *attributes)
{
	struct node **bucket = bucket_of(attributes->st_dev, attributes->st_ino);
	struct node *node;

	for (node = *bucket; node; node = node->next)
		if (node->device == attributes->st_dev && node->inode == attributes->st_ino) {
			close(fd);
			return node;
		}
	node = calloc(1, sizeof *node);
	if (!node)
		abort();
	*node = (struct node){*bucket, attributes->st_dev, attributes->st_ino, 0, fd};
	return *bucket = node;
}

static void do_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry = {0};
	int fd = openat(node_of(parent)->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct node *node;

	if (fd < 0 || fstat(fd, &entry.attr)) {
		fuse_reply_err(request, errno);
		return;
	}
	node = found_or_made(fd, &entry.attr);
	node->lookups++;
	entry.ino = (uintptr_t)node;
	fuse_reply_entry(request, &entry);
}

static void do_forget(fuse_req_t request, fuse_ino_t number, uint64_t lookups)
{
	struct node *node = node_of(number), **at;

	if (node != &root && !(node->lookups -= lookups)) {
		for (at = bucket_of(node->device, node->inode); *at != node; at = &(*at)->next)
			;
		*at = node->next;
		close(node->fd);
		free(node);
	}
	fuse_reply_none(request);
}

static void do_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
	struct stat attributes;

	(void)file;
	if (fstat(node_of(number)->fd, &attributes))
		fuse_reply_err(request, errno);
	else
		fuse_reply_attr(request, &attributes, 0);
}

static void do_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
	char path[32];
	int fd;

	snprintf(path, sizeof path, "/proc/self/fd/%d", node_of(number)->fd);
	fd = open(path, file->flags & ~O_NOFOLLOW);
	if (fd < 0) {
		fuse_reply_err(request, errno);
		return;
	}
	file->fh = (uint64_t)fd;
	file->direct_io = 1;
	fuse_reply_open(request, file);
}

static void do_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset, struct fuse_file_info *file)
{
	struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(size);

	(void)number;
	buffer.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	buffer.buf[0].fd = (int)file->fh;
	buffer.buf[0].pos = offset;
	fuse_reply_data(request, &buffer, 0);
}

static void do_write(fuse_req_t request, fuse_ino_t number, const char *data, size_t size, off_t offset,
		     struct fuse_file_info *file)
{
	ssize_t written = pwrite((int)file->fh, data, size, offset);

	(void)number;
	if (written < 0)
		fuse_reply_err(request, errno);
	else
		fuse_reply_write(request, (size_t)written);
}

static void do_flush(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
	int copy = dup((int)file->fh);

	(void)number;
	fuse_reply_err(request, copy < 0 || close(copy) ? errno : 0);
}

static void do_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *file)
{
	(void)number;
	close((int)file->fh);
	fuse_reply_err(request, 0);
}

static const struct fuse_lowlevel_ops operations = {
	.lookup = do_lookup,
	.forget = do_forget,
	.getattr = do_getattr,
	.open = do_open,
	.read = do_read,
	.write = do_write,
	.flush = do_flush,
	.release = do_release,
};

int main(int argc, char **argv)
{
	char *options[] = {argv[0], "-o", "default_permissions,allow_other", NULL};
	struct fuse_args arguments = FUSE_ARGS_INIT(3, options);
	struct fuse_session *session;
	int status = 1;

	if (argc != 3)
		return 2;
	root.fd = open(argv[1], O_PATH | O_CLOEXEC);
	if (root.fd < 0) {
		perror(argv[1]);
		return 1;
	}
	session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
	if (!session)
		return 1;
	if (!fuse_set_signal_handlers(session)) {
		if (!fuse_session_mount(session, argv[2])) {
			puts("ready");
			fflush(stdout);
			status = fuse_session_loop(session) != 0;
			fuse_session_unmount(session);
		}
		fuse_remove_signal_handlers(session);
	}
	fuse_session_destroy(session);
	return status;
}
