//! The daemon's configuration, fed with what is nearly right. See `tests/fuzz/harness.rs`.

#[path = "../../../../tests/fuzz/harness.rs"]
mod harness;

use std::path::Path;

use harness::{fuzz, mutate};

use super::glob::Glob;
use super::read::read;

#[test]
fn configurations_that_are_nearly_right_are_read_or_refused_with_their_place() {
    let text = "[daemon]\ninterval = \"5s\"\ncpu-budget = \"2%\"\njournal = \"/x\"\n\n[[rule]]\nname = \"r\"\nmatch = { unit = \"redis*.service\", \
                comm = \"a[b-c]?\" }\npolicy = \"mega\"\nset = { uprom = \"40%\" }\nstall-budget = \"2%\"\nguarantee = \"95%\"\nmin-resident = \
                \"64M\"\n\n[[rule]]\nmatch = { cgroup = \"/a/**/b\", exe = \"/usr/*\", user = \"x\" }\npolicy = \"off\"\n";
    let (_, problems) = read(Path::new("f"), text);
    assert!(problems.is_empty(), "the seed is a configuration: {problems:?}");
    let seeds = vec![text.as_bytes().to_vec()];
    let words = [
        "[[rule]]",
        "[daemon]",
        "match = ",
        "{ ",
        "\"\"\"",
        "'''",
        "\\u0000",
        "1979-05-27",
        "inf",
        "**",
        "[a-",
        "\"-5%\"",
        "preset = ",
        "\r",
    ];
    fuzz(
        "configuration",
        |dice| mutate(dice, &seeds, &words),
        |input| {
            let text = String::from_utf8_lossy(input);
            let (_, problems) = read(Path::new("f"), &text);
            for problem in problems {
                assert!(problem.to_string().starts_with('f'), "{problem}");
            }
            let line = text.lines().next().unwrap_or_default();
            for is_path in [false, true] {
                let glob = Glob::new(line, is_path);
                let _ = (glob.matches(line), glob.covers(&glob));
            }
        },
    );
}
