use super::*;
use crate::page::HUGE;

fn read(text: &str) -> Layout {
    Layout::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn intervals(text: &str) -> Vec<(Kind, usize, usize)> {
    read(text)
        .intervals()
        .iter()
        .map(|i| (i.kind, i.start, i.end))
        .collect()
}

fn why(text: &str) -> Why {
    Layout::parse(text).expect_err(text).why
}

const G: usize = GIGANTIC;

#[test]
fn an_interval_without_length_extends_as_documented() {
    assert_eq!(intervals("4K"), [(Kind::Base, 0, usize::MAX)]);
    assert_eq!(
        intervals("1G@0,2M"),
        [(Kind::Gigantic, 0, G), (Kind::Huge, G, usize::MAX)]
    );
    assert_eq!(
        intervals("2M,1G@4G"),
        [(Kind::Huge, 0, 4 * G), (Kind::Gigantic, 4 * G, usize::MAX)]
    );
    assert_eq!(
        intervals("2M:thp+64M,4K,2M@1G+4M"),
        [
            (Kind::Thp, 0, 64 << 20),
            (Kind::Base, 64 << 20, G),
            (Kind::Huge, G, G + 2 * HUGE)
        ]
    );
    // The gigabyte that the 2 MB interval cuts stays on base pages.
    assert_eq!(
        intervals("1G,2M@1026M+2M"),
        [(Kind::Gigantic, 0, G), (Kind::Huge, G + HUGE, G + 2 * HUGE)]
    );
}

#[test]
fn a_window_leaves_base_pages_around_it() {
    let layout = read(" 2m@512m+64m ");
    assert_eq!(layout.kind_at((512 << 20) - 1), Kind::Base);
    assert_eq!(layout.kind_at(512 << 20), Kind::Huge);
    assert_eq!(layout.kind_at((576 << 20) - 1), Kind::Huge);
    assert_eq!(layout.kind_at(576 << 20), Kind::Base);
    assert_eq!(layout.demand(Kind::Huge), (64 << 20, false));
    assert!(layout.has(Kind::Huge) && layout.has(Kind::Base) && !layout.has(Kind::Thp));
    assert_eq!(read("1G+2G,1G").demand(Kind::Gigantic), (2 * G, true));
}

#[test]
fn what_makes_no_sense_says_why() {
    for (text, expected) in [
        ("", Why::Empty),
        ("2M,", Why::Empty),
        (",2M", Why::Empty),
        ("3M", Why::Size),
        ("2MB", Why::Size),
        ("64K", Why::Size),
        ("1G:thp", Why::Size),
        ("2M @0", Why::Size),
        ("@0", Why::Size),
        ("2M@", Why::Number),
        ("2M+", Why::Number),
        ("2M@-2M", Why::Number),
        ("2M@0x0", Why::Number),
        ("2M@0@2M", Why::Number),
        ("2M+2M@0", Why::Number),
        ("2M@99999999999999999999", Why::Number),
        ("2M@16777216T", Why::Number),
        ("2M@1M", Why::Misaligned(Kind::Huge)),
        ("2M:thp+3M", Why::Misaligned(Kind::Thp)),
        ("1G@512M", Why::Misaligned(Kind::Gigantic)),
        ("4K@1", Why::Misaligned(Kind::Base)),
        ("4K+4K,2M", Why::Misaligned(Kind::Huge)),
        ("2M+2M,1G", Why::Misaligned(Kind::Gigantic)),
        ("2M+0", Why::Nothing),
        ("2M+4M,2M@2M", Why::Overlap),
        ("2M@4M,2M@0", Why::Overlap),
        ("2M@4M,2M@4M", Why::Overlap),
        ("1G,2M@2M", Why::Overlap),
        ("2M@15T+2T", Why::TooLarge),
        ("2M@17T", Why::TooLarge),
    ] {
        assert_eq!(why(text), expected, "{text}");
    }
    let many = vec!["2M+2M"; MOST + 1].join(",");
    assert_eq!(why(&many), Why::TooMany);
    assert_eq!(read(&many[..many.len() - 6]).intervals().len(), MOST);
}

#[test]
fn an_error_is_one_line_that_names_the_interval() {
    let error = Layout::parse("4K@0+4K,3M\n@0").unwrap_err().to_string();
    assert_eq!(
        error,
        "interval '3M\\n@0': no page size that pools have: expected 4K, 2M, 2M:thp or 1G"
    );
    let error = Layout::parse("1G@512M").unwrap_err().to_string();
    assert_eq!(
        error,
        "interval '1G@512M': offset and length must be multiples of its page size, 1G"
    );
}

#[test]
fn sizes_are_read_and_shown() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("64K", 65536),
        ("3m", 3 << 20),
        ("2G", 2 << 30),
        ("1T", 1 << 40),
    ] {
        assert_eq!(Size::parse(text), Some(bytes));
    }
    for bad in ["", "K", "1.5G", "1KB", "+1", "-1", " 1", "1 K", "é", "1é"] {
        assert_eq!(Size::parse(bad), None, "{bad}");
    }
    assert_eq!(Size(3 << 20).to_string(), "3M");
    assert_eq!(Size(5000).to_string(), "5000");
    assert_eq!(Size(0).to_string(), "0");
}

#[test]
fn a_pool_holds_its_layout() {
    assert_eq!(pool_bytes(&Layout::BASE, 1), G);
    assert_eq!(pool_bytes(&read("2M@1G+2M"), 0), 2 * G);
    assert_eq!(pool_bytes(&read("1G@4G"), 0), 5 * G);
    assert_eq!(pool_bytes(&read("2M@1G"), 8 * G), 8 * G);
    assert_eq!(pool_bytes(&Layout::BASE, usize::MAX), LARGEST_POOL);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "([124][KMG](:thp)?(@[0-9]{1,4}[KMG]?)?(\\+[0-9]{1,4}[KMG]?)?,?){0,6}|.{0,40}") {
        if let Ok(layout) = Layout::parse(&text) {
            let mut end = 0;
            for interval in layout.intervals() {
                assert!(interval.start >= end && interval.end > interval.start);
                assert_eq!(interval.start % interval.kind.bytes(), 0);
                end = interval.end;
            }
            assert_eq!(Layout::parse(&layout.to_string()), Ok(layout), "what is shown reads the same");
        }
    }
}
