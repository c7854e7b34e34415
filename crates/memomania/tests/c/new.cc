// C++ new and delete in all variants, through the library.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>
#include <dlfcn.h>

#define MUST(what) do { if (!(what)) { std::fprintf(stderr, "%d: %s\n", __LINE__, #what); std::_Exit(1); } } while (0)

struct alignas(256) Wide { char bytes[700]; };
thread_local std::vector<std::string> words;

static bool is_ours(void *block) {
    // In the library's reservation, which no file is mapped to; malloc_usable_size of another allocator's block would crash.
    Dl_info info;
    return block && !dladdr(block, &info);
}

int main() {
    int *one = new int(5); MUST(is_ours(one)); delete one;
    int *many = new int[1000]; delete[] many;
    Wide *wide = new Wide; MUST(reinterpret_cast<std::uintptr_t>(wide) % 256 == 0); delete wide;
    Wide *wides = new Wide[9]; MUST(reinterpret_cast<std::uintptr_t>(wides) % 256 == 0); delete[] wides;
    MUST(new (std::nothrow) char[PTRDIFF_MAX - 100] == nullptr);
    bool thrown = false;
    volatile std::size_t huge = PTRDIFF_MAX - 100;
    try { char *volatile block = new char[huge]; delete[] block; } catch (const std::bad_alloc &) { thrown = true; }
    MUST(thrown);
    void *raw = ::operator new(100); ::operator delete(raw, std::size_t(100));
    raw = ::operator new(100, std::align_val_t(4096)); ::operator delete(raw, std::align_val_t(4096));
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++) threads.emplace_back([t] {
        for (int i = 0; i < 20000; i++) words.push_back(std::string(static_cast<std::size_t>(i % 300), static_cast<char>('a' + t)));
        for (std::size_t i = 0; i < words.size(); i++) MUST(words[i].size() == i % 300);
    });
    for (auto &thread : threads) thread.join();
    return 0;
}
