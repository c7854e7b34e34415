#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# `mega run --policy lrbhps` on this kernel: mega-lab's `touch` fills 64 MB page by page and checks them. Each of its 32
# blocks is reserved and mapped huge in place at the threshold, and what did not ask gets none.
set -u
bad=0
check() { # check WORDS COMMAND...
    words=$1
    shift
    "$@" || { echo "not so: $words"; bad=1; }
}
figure() { # figure NAME: of the summary
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" /tmp/summary
}
grown() { # grown COUNTER: since the shell variable of its name
    now=$(sed -n "s/^$1 //p" /proc/vmstat)
    eval "echo \$((now - \$$1))"
}
check "doctor finds reservations" sh -c 'mega doctor --json | grep -q "\"name\":\"reservations\",\"status\":\"ok\""'
thp=/sys/kernel/mm/transparent_hugepage/enabled
echo madvise >$thp
mega run --policy lrbhps -- true 2>/tmp/summary
check "madvise: it says that only advised memory is reserved" grep -q "only memory that the command advises" /tmp/summary
echo never >$thp
mega run --policy lrbhps -- true 2>/tmp/refused
check "without huge pages there are no reservations" [ $? = 125 ]
check "and it says what to set" grep -q "madvise or always" /tmp/refused
echo always >$thp
for t in 64 256; do
    mega run --json --policy lrbhps --set t=$t -- mega-lab workload touch --mib 64 >/tmp/out 2>/tmp/summary
    check "t=$t: its status is the command's" [ $? = 0 ]
    check "t=$t: contents are right" grep -q '"event":"checked".*"ok":true' /tmp/out
    cat /tmp/summary
    check "t=$t: blocks reserved" [ "$(figure reserved)" -ge 32 ]
    check "t=$t: mapped huge in place" [ "$(figure promoted)" -ge 32 ]
    check "t=$t: pages populated" [ "$(figure populated_pages)" -ge $((32 * (t - 1))) ]
done
reserve=/sys/kernel/mm/transparent_hugepage/reserve
idle=$(cat $reserve/idle_ms)
echo 600000 >$reserve/idle_ms
# Until the end of its input.
sleep 600 | mega run --policy lrbhps -- mega-lab workload sparse --mib 64 --share 0.01 >/tmp/held 2>/dev/null &
while ! grep -q '"event":"ready"' /tmp/held; do sleep 1; done
held=$(sed -n 's/.*"event":"ready".*"pid":\([0-9]*\).*/\1/p' /tmp/held)
mega show "$held" >/tmp/shown
check "show has what is reserved for it" grep -q "reserved and not populated [0-9.]*M" /tmp/shown
bytes=$(mega show --json "$held" | grep -o '"reserved_bytes":[0-9]*' | cut -d: -f2 | sort -n | tail -n 1)
check "31 of 32 blocks and more" [ "${bytes:-0}" -ge $((31 << 21)) ]
kill "$held"
echo "$idle" >$reserve/idle_ms
thp_reserve_alloc=$(sed -n 's/^thp_reserve_alloc //p' /proc/vmstat)
mega-lab workload touch --mib 64 >/dev/null
check "who does not ask gets none" [ "$(grown thp_reserve_alloc)" = 0 ]
mega run --policy lrbhps --set t=513 -- true 2>/tmp/refused
check "a threshold out of range is refused" [ $? = 125 ]
check "and what is allowed is said" grep -q 512 /tmp/refused
echo never >/sys/kernel/mm/transparent_hugepage/reserve/enabled
mega run --policy lrbhps -- true 2>/tmp/refused
check "never is never" [ $? = 125 ]
check "and says where to set it" grep -q reserve/enabled /tmp/refused
[ $bad = 0 ] && echo "mega uses reservations: ok"
exit $bad
