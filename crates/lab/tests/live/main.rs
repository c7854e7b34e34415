//! The promises of `mega` on the live machine: real processes, real memory, real kernel. One test at a time, because each measures the
//! machine's memory; those that lack a privilege or memory say so and skip.

mod support;

mod kinds;
