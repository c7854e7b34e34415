#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Latency of a real Redis' requests, where an instruction is a nanosecond: one client sets 40,000 keys of 2 KB at random in an empty Redis, and then
# gets them. redis-benchmark's figures are milliseconds, each a million instructions of client and server together.
set -u
thp=/sys/kernel/mm/transparent_hugepage
row() { # row NAME PREFIX...
    name=$1
    shift
    "$@" redis-server --port 0 --unixsocket /tmp/redis --save '' --disable-thp no --daemonize no --logfile /tmp/log >/tmp/out 2>&1 &
    starter=$!
    n=0
    until redis-cli -s /tmp/redis ping >/dev/null 2>&1; do
        n=$((n + 1))
        [ $n -lt 600 ] || { echo "$name: no Redis"; cat /tmp/out /tmp/log; exit 1; }
        sleep 0.1
    done
    pid=$(pidof redis-server)
    for test in set get; do
        redis-benchmark -s /tmp/redis -t $test -n 40000 -r 40000 -d 2048 -c 1 --csv 2>/tmp/err | tail -n 1 |
            tr -d '"' | awk -F, -v name="$name" '{ printf "%-20s %s requests/s %s avg %s min %s p50 %s p95 %s p99 %s max %s\n", name, $1, $2, $3, $4, $5, $6, $7, $8 }'
    done
    echo "$name faults $(cut -d' ' -f10 "/proc/$pid/stat") huge_kB $(sed -n 's/^AnonHugePages: *\([0-9]*\) kB/\1/p' "/proc/$pid/smaps_rollup")"
    redis-cli -s /tmp/redis shutdown nosave >/dev/null 2>&1
    wait $starter
    rm -f /tmp/redis
}
echo never >$thp/enabled
row "base pages"
echo always >$thp/enabled
row "stock huge pages"
echo never >$thp/hugepages-2048kB/enabled
echo always >$thp/hugepages-64kB/enabled
row "64 KB folios"
echo never >$thp/hugepages-64kB/enabled
echo inherit >$thp/hugepages-2048kB/enabled
[ -e $thp/reserve ] || exit 0
for t in 64 256; do
    row "reservations, t $t" mega run -q --policy lrbhps --set t=$t --
done
