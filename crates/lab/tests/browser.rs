//! The report in a real browser: nothing is fetched, nothing complains, everything is there and no text lies on another.
//! Skipped, with the reason, where there is no chromium.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use mega_lab::report::html;
use mega_lab::report::plot::WIDTH;
use mega_lab::result::{self, About, Case};
use mega_lab::simulated::figures;
use mega_sim::scenario::{Scenario, Silent};
use serde::Deserialize;

#[path = "../src/report/synthetic.rs"]
mod synthetic;
use synthetic::Options;

/// A script for a copy of the page: what the browser made of it, as JSON in the last element. The page itself has none, and
/// its policy would not let one run.
const PROBE: &str = r#"<pre id="probe"></pre><script>
document.querySelectorAll('details').forEach(d => d.open = true);
const hits = [];
for (const svg of document.querySelectorAll('svg')) {
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const frame = svg.getBoundingClientRect();
  texts.forEach(([text, a], i) => {
    if (a.left < frame.left - 2 || a.right > frame.right + 2) hits.push('outside: ' + text + ' in ' + svg.getAttribute('aria-label'));
    for (const [other, b] of texts.slice(i + 1)) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 0.5 && high > a.height * 0.25) hits.push(text + ' / ' + other);
    }
  });
}
const sizes = [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height]);
document.getElementById('probe').textContent = JSON.stringify({
  hits, sizes, window: innerWidth, document: document.documentElement.scrollWidth,
  background: getComputedStyle(document.body).backgroundColor,
});
</script>"#;

/// A script beside a page in a frame, since a window of the browser cannot be as narrow as a phone: what leaves its card or the page, with
/// everything folded and unfolded. What scrolls in a box of its own is left out.
const FRAMED: &str = r#"<pre id="probe"></pre><script>
addEventListener('load', () => {
  const inside = document.querySelector('iframe').contentDocument;
  const wide = [];
  const look = state => {
    const root = inside.documentElement;
    if (root.scrollWidth > root.clientWidth) wide.push(`${state}: the page is ${root.scrollWidth} wide`);
    for (const card of inside.querySelectorAll('main, section, details.card')) {
      const end = card.getBoundingClientRect().right + 0.5;
      for (const e of card.querySelectorAll('*')) {
        if (e.closest('.scroll, pre') && !e.matches('.scroll, pre')) continue;
        if (e.closest('svg') && !e.matches('svg')) continue;
        if (e.getBoundingClientRect().right > end) wide.push(`${state}: ${e.tagName} ${e.textContent.slice(0, 40)}`);
      }
    }
    for (const e of inside.querySelectorAll('td, th, .tag, caption, .verdict')) {
      if (!e.closest('.scroll') && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
        wide.push(`${state}: text leaves its ${e.tagName}: ${e.textContent}`);
    }
  };
  look('folded');
  const picture = inside.querySelector('#glance').getBoundingClientRect();
  const verdict = inside.querySelector('.verdict').getBoundingClientRect();
  inside.querySelectorAll('details').forEach(d => d.open = true);
  look('unfolded');
  const unnamed = [...inside.querySelectorAll('svg')].filter(s => !s.getAttribute('aria-label')).length
    + [...inside.querySelectorAll('table.figure th')].filter(t => !t.getAttribute('scope')).length;
  document.getElementById('probe').textContent = JSON.stringify({
    wide, unnamed, width: inside.documentElement.clientWidth, verdict: verdict.top, picture: picture.top,
  });
  inside.querySelectorAll('details').forEach(d => d.open = false);
});
</script>"#;

/// What [`FRAMED`] saw.
#[derive(Debug, Deserialize)]
struct Framed {
    /// What is too wide.
    wide: Vec<String>,
    /// Pictures and cells of heads that a screen reader cannot name.
    unnamed: usize,
    /// Width of the page.
    width: f64,
    /// Where the verdict begins.
    verdict: f64,
    /// Where the picture does.
    picture: f64,
}

/// What [`PROBE`] saw.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Texts that lie on another or leave their figure.
    hits: Vec<String>,
    /// Width and height of each figure.
    sizes: Vec<(f64, f64)>,
    /// Width of the window.
    window: f64,
    /// Width of what is in it.
    document: f64,
    /// Colour of the page.
    background: String,
}

/// The browser, or why there is none.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .flat_map(|folder| [folder.join("chromium"), folder.join("chromium-browser")])
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no chromium (apt-get install chromium)");
    }
    found
}

fn browse(chromium: &Path, page: &Path, options: &[&str]) -> Output {
    let profile = tempfile::tempdir().expect("a folder for the profile");
    Command::new("timeout")
        .args(["-k", "5", "90"])
        .arg(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args(["--enable-logging=stderr", "--v=0", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium starts")
}

fn probe(chromium: &Path, page: &str, options: &[&str]) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.html");
    let policy = page
        .lines()
        .find(|l| l.contains("Content-Security-Policy"))
        .expect("a policy");
    let probed = page.replace(policy, "").replace("</body>", &format!("{PROBE}</body>"));
    std::fs::write(&file, probed).unwrap();
    let mut all = vec!["--dump-dom", "--virtual-time-budget=2000"];
    all.extend(options);
    let out = browse(chromium, &file, &all);
    let dom = String::from_utf8_lossy(&out.stdout);
    serde_json::from_str(&probed_json(&dom, &out)).expect("the probe's JSON")
}

/// The text of the probe's element.
fn probed_json(dom: &str, out: &Output) -> String {
    let json = dom
        .split("<pre id=\"probe\">")
        .nth(1)
        .and_then(|rest| rest.split("</pre>").next());
    let json = json.unwrap_or_else(|| panic!("no probe: {}", String::from_utf8_lossy(&out.stderr)));
    json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The page at exactly this width; a picture of it is left in `target/tmp` for somebody to look at.
fn framed(chromium: &Path, page: &str, width: u32, name: &str) -> Framed {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("framed.html");
    let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><style>body {{ margin: 0 }} pre {{ display: none }}</style>\
         <iframe style=\"border: 0; width: {width}px; height: 2400px\" srcdoc=\"{escaped}\"></iframe>{FRAMED}"
    );
    std::fs::write(&file, frame).unwrap();
    let shot = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}-{width}.png"));
    let window = format!("--window-size={},2400", width.max(500));
    browse(chromium, &file, &[&format!("--screenshot={}", shot.display()), &window]);
    let out = browse(chromium, &file, &["--dump-dom", "--virtual-time-budget=2000", &window]);
    let dom = String::from_utf8_lossy(&out.stdout);
    serde_json::from_str(&probed_json(&dom, &out)).expect("the probe's JSON")
}

/// A page, also left in `target/tmp` for somebody to look at.
fn page(variants: usize, troubled: bool) -> String {
    let page = html::page(&synthetic::record(&Options {
        rounds: 12,
        variants,
        troubled,
        ..Options::default()
    }));
    let name = format!("report-{variants}{}.html", if troubled { "-troubled" } else { "" });
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), &page).expect("the page is kept");
    page
}

/// The page of simulated runs, one of which fails.
fn simulated_page() -> String {
    let of = |system: &str, mib: u64| {
        let text = format!(
            r#"{{"machine": {{"memory": "256M"}}, "system": "{system}", "interval": "50ms", "every": "50ms", "programs": [
                {{"run": {{"program": "chunks", "mib": {mib}, "chunk_mib": 8, "time_ns": 1000000000}}}}]}}"#
        );
        Scenario::from_json(&text).expect("a scenario")
    };
    let systems = [
        "base",
        "thp-always",
        "mega:compact=off",
        "lrbhps:t=256",
        "linux:defrag=defer+madvise+mega:uprom=30%",
    ];
    let run = |(variant, system): (usize, &&str)| {
        let outcome = of(system, if variant == 3 { 400 } else { 96 })
            .run(&mut Silent)
            .expect("a run");
        figures::run_of(&outcome, 0, variant, 0)
    };
    let scenario = of("base", 96);
    let text = |text: &str| text.to_string();
    let record = figures::record(figures::Parts {
        about: About {
            name: text("chunks"),
            title: text("chunks, simulated"),
            question: text("What do they make of it?"),
            source: None,
            scale: None,
            differs: None,
        },
        machine: figures::machine(&scenario.machine),
        cases: vec![Case {
            name: text("chunks"),
            program: serde_json::to_string(&scenario.programs[0].run).expect("JSON"),
            condition: figures::condition(None),
        }],
        variants: systems
            .iter()
            .map(|s| figures::variant(&s.parse().expect("a system")))
            .collect(),
        runs: systems.iter().enumerate().map(run).collect(),
        published: Vec::new(),
        main: figures::main_metrics(&["chunks"]),
        rounds: 1,
        seed: 1,
        command: text("mega sim run --workload chunks"),
    });
    let page = html::page(&record);
    std::fs::write(
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-simulated.html"),
        &page,
    )
    .expect("it is kept");
    page
}

#[test]
fn simulated_runs_have_a_page_like_any_other_on_a_screen_and_on_a_phone() {
    let page = simulated_page();
    for reference in ["http:", "https:", "src=", "href=", "url(", "<script"] {
        assert!(!page.contains(reference), "{reference} is in the page");
    }
    assert!(page.contains("killed: out of memory"), "why a run failed");
    let Some(chromium) = chromium() else {
        return;
    };
    let wide = probe(&chromium, &page, &["--window-size=1200,2000"]);
    assert!(wide.hits.is_empty() && wide.sizes.len() >= 6, "{wide:#?}");
    let narrow = probe(&chromium, &page, &["--window-size=320,2000"]);
    assert!(narrow.document <= narrow.window, "{narrow:?}");
}

#[test]
fn the_page_refers_to_nothing_outside_itself() {
    let page = page(9, true);
    for reference in [
        "http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "<object",
    ] {
        assert!(!page.contains(reference), "{reference} is in the page");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_browser_has_nothing_to_complain_about_and_shows_every_figure() {
    let Some(chromium) = chromium() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let shot = folder.path().join("shot.png");
    std::fs::write(&file, page(4, true)).unwrap();
    let screenshot = format!("--screenshot={}", shot.display());
    let out = browse(&chromium, &file, &[&screenshot, "--window-size=1200,2000"]);
    let log = String::from_utf8_lossy(&out.stderr);
    assert!(!log.contains("CONSOLE"), "{log}");
    // An empty page of this size compresses to some 10 kB.
    let bytes = std::fs::metadata(&shot).unwrap_or_else(|e| panic!("{e}: {log}")).len();
    assert!(bytes > 60_000, "the picture has {bytes} bytes");

    let out = browse(&chromium, &file, &["--dump-dom", "--virtual-time-budget=2000"]);
    let dom = String::from_utf8_lossy(&out.stdout);
    // Four metrics, one or two figures of the paper, two series and a distribution for each of two cases; and two pictures of memory for
    // each of the three variants that came to an end. Before them, a picture of the ratios of each of three metrics.
    assert_eq!(dom.matches("<svg ").count(), 17 + 2 * 3 * 2 + 3, "{dom}");
}

#[test]
fn no_text_lies_on_another_and_every_figure_has_a_size_with_nine_variants() {
    let Some(chromium) = chromium() else {
        return;
    };
    for (variants, troubled) in [(9, false), (4, true), (1, false)] {
        let seen = probe(&chromium, &page(variants, troubled), &["--window-size=1200,2000"]);
        assert!(seen.hits.is_empty(), "{variants} variants: {:#?}", seen.hits);
        assert!(!seen.sizes.is_empty());
        for (width, height) in &seen.sizes {
            assert!(*width >= WIDTH * 0.9 && *height > 50.0, "{width} by {height}");
        }
    }
}

#[test]
fn at_400_1000_and_1600_pixels_nothing_leaves_its_card_and_the_verdict_comes_first() {
    let Some(chromium) = chromium() else {
        return;
    };
    for (variants, troubled) in [(9, true), (4, false)] {
        let page = page(variants, troubled);
        for width in [400, 1000, 1600] {
            let seen = framed(&chromium, &page, width, &format!("{variants}"));
            assert!((seen.width - f64::from(width)).abs() < 20.0, "{seen:?}");
            assert!(seen.wide.is_empty(), "{variants} variants at {width}: {:#?}", seen.wide);
            assert_eq!(seen.unnamed, 0);
            assert!(seen.verdict < 500.0 && seen.verdict < seen.picture, "{seen:?}");
        }
    }
}

#[test]
fn a_phone_does_not_have_to_scroll_sideways() {
    let Some(chromium) = chromium() else {
        return;
    };
    let seen = probe(&chromium, &page(9, true), &["--window-size=320,2000"]);
    assert!(seen.window <= 500.0, "{seen:?}");
    assert!(seen.document <= seen.window, "{seen:?}");
    assert!(
        seen.sizes
            .iter()
            .all(|(width, _)| *width > 200.0 && *width <= seen.window),
        "{seen:?}"
    );
}

#[test]
fn the_page_is_dark_where_that_is_preferred() {
    let Some(chromium) = chromium() else {
        return;
    };
    let page = page(4, false);
    let of = |scheme: &str| {
        probe(
            &chromium,
            &page,
            &[&format!("--blink-settings=preferredColorScheme={scheme}")],
        )
        .background
    };
    let (dark, light) = (of("0"), of("1"));
    assert_eq!(
        (light.as_str(), dark.as_str()),
        ("rgb(246, 247, 249)", "rgb(17, 21, 26)")
    );
}
