//! Go with its own collector: maps in several goroutines, replaced again and again.

use super::Real;

/// Size: hundred thousands of entries in each of four maps.
pub const GO: Real = Real {
    name: "go",
    about: "Go: maps in four goroutines under its collector",
    runtime: ("go", "apt install golang-go, or dnf install golang"),
    packages: &[],
    source: ("job.go", SOURCE),
    compile: &["{runtime}", "build", "-o", "{made}", "{source}"],
    run: &["{made}", "{size}", "{seed}"],
    size: (20, 1),
    bytes: (256 << 20, 256 << 20),
    unit_s: 1.0,
};

const SOURCE: &str = r#"
package main

import (
	"fmt"
	"os"
	"strconv"
)

func fill(entries int, draw uint64, done chan bool) {
	values := map[uint64]*[12]uint64{}
	for round := 0; round < 5; round++ {
		for i := 0; i < entries; i++ {
			draw = draw*6364136223846793005 + 1442695040888963407
			key := uint64(i)
			if round > 0 {
				key = (draw >> 20) % uint64(entries)
			}
			values[key] = &[12]uint64{0: key, 11: ^key}
		}
	}
	right := len(values) == entries
	for key, value := range values {
		right = right && value[0] == key && value[11] == ^key
	}
	done <- right
}

func main() {
	size, _ := strconv.Atoi(os.Args[1])
	seed, _ := strconv.Atoi(os.Args[2])
	done := make(chan bool)
	for i := 0; i < 4; i++ {
		go fill(size*100000, uint64(seed+i), done)
	}
	if !(<-done && <-done && <-done && <-done) {
		panic("an entry is wrong")
	}
	fmt.Println("right")
}
"#;
