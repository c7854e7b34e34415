#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# LRBHPS' memory table with a real Redis, at a fiftieth of its size: what the machine gave (free memory before, minus after), right after the last
# request and fifteen seconds later, when its allocator has given back what it decayed (10 s) and idle reservations are released (5 s); and instructions, where one is a nanosecond.
#   Del-50, Del-70: 28,000 values of 8 KB, then so many per cent of them deleted at random.  Range-XL: 400 values of 256 B to 1 MB.
#   Range-S: 20,000 values of 256 B to 16 KB.
set -u
thp=/sys/kernel/mm/transparent_hugepage
ask() { redis-cli -e -s /tmp/redis "$@" >/tmp/answer 2>&1 || { echo "redis-cli $*:"; cat /tmp/answer; exit 1; }; }
free_kb() { echo 3 >/proc/sys/vm/drop_caches; sed -n 's/^MemFree: *\([0-9]*\) kB/\1/p' /proc/meminfo; }
counter() { sed -n "s/^$1 //p" /proc/vmstat; }
case_of() { # case_of CASE
    case $1 in
    del-*)
        ask debug populate 28000 key 8192
        ask eval "for i = 0, 27999 do if math.random(100) <= tonumber(ARGV[1]) then redis.call('del', 'key:' .. i) end end" 0 "${1#del-}"
        ;;
    range-xl) ask eval "for i = 1, 400 do redis.call('set', i, string.rep('x', math.random(256, 1048576))) end" 0 ;;
    range-s) ask eval "for i = 1, 20000 do redis.call('set', i, string.rep('x', math.random(256, 16384))) end" 0 ;;
    esac
}
row() { # row NAME PREFIX...
    name=$1
    shift
    for case in del-50 del-70 range-xl range-s; do
        before=$(free_kb)
        from=$(counter thp_reserve_promote)
        "$@" redis-server --port 0 --unixsocket /tmp/redis --save '' --disable-thp no --enable-debug-command yes --daemonize no --logfile /tmp/log >/tmp/out 2>&1 &
        starter=$!
        n=0
        until redis-cli -s /tmp/redis ping >/dev/null 2>&1; do
            n=$((n + 1))
            [ $n -lt 600 ] || { echo "$name: no Redis"; cat /tmp/out /tmp/log; exit 1; }
            sleep 0.1
        done
        pid=$(pidof redis-server)
        started=$(cut -d' ' -f1 /proc/uptime)
        case_of $case
        ended=$(cut -d' ' -f1 /proc/uptime)
        at_once=$((before - $(free_kb)))
        sleep 15
        later=$((before - $(free_kb)))
        rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")
        huge=$(sed -n 's/^AnonHugePages: *\([0-9]*\) kB/\1/p' "/proc/$pid/smaps_rollup")
        faults=$(cut -d' ' -f10 "/proc/$pid/stat")
        reserved=$(sed -n 's/^AnonReserved: *\([0-9]*\) kB/\1/p' /proc/meminfo)
        promoted=$(counter thp_reserve_promote)
        echo "$name | $case | taken_kB $at_once | later_kB $later | rss_kB $rss | huge_kB $huge | reserved_kB ${reserved:-0} |" \
            "promoted $((${promoted:-0} - ${from:-0})) | faults $faults | seconds $(echo "$started $ended" | awk '{ print $2 - $1 }')"
        redis-cli -s /tmp/redis shutdown nosave >/dev/null 2>&1
        wait $starter
        rm -f /tmp/redis
    done
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
[ -e $thp/reserve/enabled ] || exit 0
for t in 64 256; do
    row "reservations, t $t" mega run --quiet --policy lrbhps --set t=$t --
done
