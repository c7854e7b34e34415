#!/bin/sh
# The kernel's own tests of memory (tools/testing/selftests/mm), as far as this machine can run them: a line for each of what they say, without
# addresses and times, so that two kernels can be compared. With "always" every process has reservations meanwhile.
reserve=/sys/kernel/mm/transparent_hugepage/reserve
if [ "${1:-}" = always ]; then
    echo always >$reserve/enabled || exit 2
    # Huge at the first touch, as tests of huge pages want it.
    echo 1 >$reserve/threshold || exit 2
    echo always >/sys/kernel/mm/transparent_hugepage/enabled
fi
run() { # run SECONDS TEST [ARGUMENT...]
    limit=$1
    shift
    timeout "$limit" "$@" >/tmp/coloured 2>&1
    code=$?
    sed "s/$(printf '\033')\[[0-9;]*m//g; s/.*\r//" /tmp/coloured >/tmp/said
    echo "== $*: $code"
    grep -E '^(# )?(ok|not ok|\[(PASS|FAIL|OK|SKIP|UNSUPPORTED)\]|Bail)|: (OK|FAIL|Fail|Skip|SKIP)|\.\.\. ?(done|ok|OK|FAIL|Fail|skip)' /tmp/said |
        sed -E 's/0x[0-9a-f]+/ADDRESS/g; s/[0-9]+(\.[0-9]+)? ?(ms|us|ns|s|seconds|MB\/s|MiB\/s)\b/TIME/g'
    [ $code -le 4 ] || tail -n 3 /tmp/said
}
run 60 map_fixed_noreplace
run 60 map_populate
run 120 mlock2-tests
run 60 on-fault-limit
run 60 mrelease_test
run 300 mremap_test
run 60 mremap_dontunmap
run 120 madv_populate
run 120 mkdirty
run 60 mdwe_test
run 120 mseal_test
run 60 droppable
run 120 gup_longterm
run 300 pagemap_ioctl
run 300 cow
run 300 uffd-unit-tests
run 120 uffd-stress anon 20 4
run 120 uffd-stress shmem 20 4
run 120 ksm_functional_tests
run 300 khugepaged
run 300 khugepaged -s 2
run 120 split_huge_page_test
run 120 transhuge-stress -d 20
run 120 compaction_test
run 60 thp_reserve
exit 0
