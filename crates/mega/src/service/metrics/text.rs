//! The exposition formats: Prometheus' text (0.0.4), and OpenMetrics 1.0, which differs in the names of counters, in units, and in its end.
//!
//! Written by hand: `prometheus-client` would add eight crates to a program that runs as root, for a page that is made anew from figures that
//! are kept anyway. Prometheus itself reads the page in `crates/mega/tests/metrics.rs`.

use std::fmt::{Display, Write};

/// Which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// What everything reads, node_exporter's textfile collector, too.
    Prometheus,
    /// What Prometheus asks for.
    OpenMetrics,
}

impl Format {
    /// The format that a request's Accept header asks for.
    pub fn accepted(accept: &str) -> Self {
        match accept.contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Its Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// Labels with their values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page under construction. All samples of a metric follow its head.
pub struct Page {
    text: String,
    format: Format,
    name: String,
}

impl Page {
    /// An empty one.
    pub fn new(format: Format) -> Self {
        Self {
            text: String::new(),
            format,
            name: String::new(),
        }
    }

    /// Begins a metric. Its unit is the end of its name.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        self.name = name.to_owned();
        let family = name.strip_suffix("_total").unwrap_or(name);
        let head = match self.format {
            Format::Prometheus => name,
            Format::OpenMetrics => family,
        };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# HELP {head} {help}\n# TYPE {head} {kind}");
        let unit = ["seconds", "bytes", "ratio"]
            .into_iter()
            .find(|unit| family.ends_with(unit));
        if let (Format::OpenMetrics, Some(unit)) = (self.format, unit) {
            let _ = writeln!(self.text, "# UNIT {head} {unit}");
        }
    }

    /// One value of the metric that was begun last.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A histogram's values: how many observations were at most each bound, the sum of all, and their number.
    pub fn histogram(&mut self, labels: Labels<'_>, buckets: impl Iterator<Item = (f64, u64)>, sum: f64, count: u64) {
        for (bound, up_to) in buckets {
            self.line("_bucket", labels, Some(&number(bound)), up_to);
        }
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut mark = '{';
        for (name, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{mark}{name}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
            mark = ',';
        }
        let end = if mark == ',' { "}" } else { "" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    /// The text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// As OpenMetrics wants a bucket's bound: always with a point.
fn number(value: f64) -> String {
    let text = value.to_string();
    match text.contains('.') {
        true => text,
        false => text + ".0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.metric("x_seconds_total", Kind::Counter, "Time.");
        page.sample(&[("rule", "a \"b\"\\\nc"), ("service", "s")], 1.5);
        page.metric("y", Kind::Gauge, "Number.");
        page.sample(&[], 3);
        page.metric("z_seconds", Kind::Histogram, "Times.");
        page.histogram(&[("rule", "r")], [(0.001, 2), (1.0, 3)].into_iter(), 0.5, 4);
        page.finish()
    }

    #[test]
    fn both_formats_have_the_same_samples_and_differ_in_heads_and_end() {
        let samples = "x_seconds_total{rule=\"a \\\"b\\\"\\\\\\nc\",service=\"s\"} 1.5\n";
        let rest = "# HELP y Number.\n# TYPE y gauge\ny 3\n# HELP z_seconds Times.\n# TYPE z_seconds histogram\n";
        let buckets = "z_seconds_bucket{rule=\"r\",le=\"0.001\"} 2\nz_seconds_bucket{rule=\"r\",le=\"1.0\"} 3\n\
                       z_seconds_bucket{rule=\"r\",le=\"+Inf\"} 4\nz_seconds_sum{rule=\"r\"} 0.5\nz_seconds_count{rule=\"r\"} 4\n";
        let head = "# HELP x_seconds_total Time.\n# TYPE x_seconds_total counter\n";
        assert_eq!(page(Format::Prometheus), format!("{head}{samples}{rest}{buckets}"));
        let head = "# HELP x_seconds Time.\n# TYPE x_seconds counter\n# UNIT x_seconds seconds\n";
        let open = format!("{head}{samples}{rest}# UNIT z_seconds seconds\n{buckets}# EOF\n");
        assert_eq!(page(Format::OpenMetrics), open);
    }

    #[test]
    fn the_format_is_the_one_that_is_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;q=0.5";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::accepted("*/*"), Format::Prometheus);
        assert_eq!(Format::accepted(""), Format::Prometheus);
    }
}
