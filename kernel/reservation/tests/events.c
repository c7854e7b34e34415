// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of blocks, event by event, while their pages are touched in a fixed random order: first for reading or writing, then all for
 * writing. Prints `t touch event block populated` for each tracepoint; crates/sim/tests/reservations.rs has the simulator do the same.
 */
#include "common.h"

#define BLOCKS	4
#define TOUCHES	(BLOCKS * (int)PAGES)
#define TRACING	"/sys/kernel/tracing/"

static uint64_t state;

static unsigned int draw(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 33;
}

static void touch_all(char *area, const int *order, const bool *read_first)
{
	int marker = open(TRACING "trace_marker", O_WRONLY), pass, i;

	CHECK(marker >= 0, "trace_marker");
	for (pass = 0; pass < 2; pass++)
		for (i = 0; i < TOUCHES; i++) {
			volatile char *p = area + order[i] * PAGE;
			char text[32];
			int n = snprintf(text, sizeof(text), "touch %d\n", pass * TOUCHES + i);

			CHECK(write(marker, text, n) == n, "trace_marker");
			if (!pass && read_first[i])
				(void)*p;
			else
				*p = 1;
		}
	close(marker);
}

static void print(unsigned long t, const char *area)
{
	FILE *trace = fopen(TRACING "trace", "r");
	char line[512], event[32];
	unsigned long address;
	int touch = -1, populated;

	CHECK(trace, "trace");
	while (fgets(line, sizeof(line), trace)) {
		const char *mark = strstr(line, "touch "), *at = strstr(line, "thp_reserve_");

		if (at && sscanf(at, "thp_reserve_%31[a-z]: address=%lx pfn=%*x populated=%d",
				 event, &address, &populated) == 3 &&
		    address >= (unsigned long)area && address < (unsigned long)area + BLOCKS * BLOCK)
			printf("%lu %d %s %lu %d\n", t, touch, event,
			       (address - (unsigned long)area) / BLOCK, populated);
		else if (mark)
			touch = atoi(mark + strlen("touch "));
	}
	fclose(trace);
}

int main(void)
{
	static const unsigned long thresholds[] = { 1, 2, 64, 256, 512 };
	static int order[TOUCHES];
	static bool read_first[TOUCHES];
	unsigned int n;
	int i;

	write_file("/sys/kernel/mm/transparent_hugepage/enabled", "always");
	write_file("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "1000000000");
	write_file("/sys/kernel/mm/transparent_hugepage/reserve/idle_ms", "1000000");
	write_file(TRACING "buffer_size_kb", "8192");
	write_file(TRACING "events/thp_reserve/enable", "1");
	for (n = 0; n < sizeof(thresholds) / sizeof(*thresholds); n++) {
		char *area;

		state = thresholds[n];
		for (i = 0; i < TOUCHES; i++)
			order[i] = i;
		for (i = TOUCHES - 1; i > 0; i--) {
			int other = draw() % (i + 1), page = order[i];

			order[i] = order[other];
			order[other] = page;
		}
		for (i = 0; i < TOUCHES; i++)
			read_first[i] = draw() % 8 == 0;
		use(thresholds[n]);
		area = blocks(BLOCKS);
		/* Forgets what was traced before. */
		close(open(TRACING "trace", O_WRONLY | O_TRUNC));
		touch_all(area, order, read_first);
		print(thresholds[n], area);
		munmap(area, BLOCKS * BLOCK);
	}
	return 0;
}
