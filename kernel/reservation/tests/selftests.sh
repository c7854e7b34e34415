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
run 900 map_fixed_noreplace
run 900 map_populate
run 900 mlock2-tests
run 900 on-fault-limit
run 900 mrelease_test
run 900 mremap_test
run 900 mremap_dontunmap
run 900 madv_populate
run 900 mkdirty
run 900 mdwe_test
run 900 mseal_test
run 900 droppable
run 900 gup_longterm
run 900 pagemap_ioctl
run 900 cow
run 900 uffd-unit-tests
run 900 uffd-stress anon 20 4
run 900 uffd-stress shmem 20 4
run 900 ksm_functional_tests
run 900 khugepaged
run 900 khugepaged -s 2
run 900 split_huge_page_test
run 900 transhuge-stress -d 20
run 900 compaction_test
run 900 thp_reserve
exit 0
