//! What was found, as a page with plots: run time against the share of memory on large pages, and what each window gains.

use std::fmt::Write;

use mega_cli::draw::svg::{escape, Anchor};
use mega_lab::report::html::whole;
use mega_lab::report::plot::axis::Axis;
use mega_lab::report::plot::lines::{frame, names, End, BOTTOM, HEIGHT, LEFT, RIGHT, TOP};
use mega_lab::report::plot::{colour, figure as empty, WIDTH};
use mega_lab::result::Unit;

use super::model::{Form, Model};
use super::plan::{Plan, POOLS};
use super::text::{bytes, change, change_with_interval, gain, options, percent, seconds, verdict, windows_model, SURE};
use super::Found;

/// Height of a window's line.
const ROW: f64 = 24.0;
/// Points of a curve.
const STEPS: usize = 40;
/// Colours: what was measured, then the models in their order.
const MEASURED: usize = 0;

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

fn share(plan: &Plan, large_bytes: usize) -> f64 {
    large_bytes as f64 / plan.large_bytes(plan.all()).max(1) as f64
}

/// Seconds that a model of the share alone has at a share.
fn at_share(model: &Model, share: f64) -> f64 {
    let powers = (0..).scan(1.0, |power, _| Some(std::mem::replace(power, *power * share)));
    model.coefficients.iter().zip(powers).map(|(c, power)| c * power).sum()
}

/// Run time against the share of memory on large pages: a dot for each layout, a line for each model that knows nothing else.
fn times(found: &Found) -> String {
    let plan = &found.plan;
    let largest = found.seconds.iter().copied().fold(0.0, f64::max) * 1e9;
    let x = Axis::linear(Unit::Ratio, 1.0, (LEFT, RIGHT), 5);
    let y = Axis::linear(Unit::Ns, largest, (BOTTOM, TOP), 5);
    let mut svg = empty(HEIGHT, "Run time against the share of memory on large pages");
    frame(&mut svg, &x, &y);
    let mut ends = Vec::new();
    for (number, model) in found.models.iter().enumerate() {
        if model.form == Form::Windows {
            continue;
        }
        let point = |step: usize| {
            let share = step as f64 / STEPS as f64;
            (x.at(share), y.at(at_share(model, share) * 1e9))
        };
        let points: Vec<_> = (0..=STEPS).map(point).collect();
        let class = colour(number + 1);
        ends.push(End {
            at: points[STEPS],
            class: class.clone(),
            name: model.form.name().to_owned(),
        });
        svg.group(&class, model.form.name(), |svg| svg.path(&[points], "line"));
    }
    svg.group(&colour(MEASURED), "measured", |svg| {
        for (set, took) in plan.sets.iter().zip(&found.seconds) {
            let large = plan.large_bytes(*set);
            let title = format!("{}: {} large, {}", plan.name(*set), bytes(large), seconds(*took));
            svg.dot((x.at(share(plan, large)), y.at(took * 1e9)), "dot", &title);
        }
    });
    names(&mut svg, &ends);
    svg.finish()
}

/// What each window gains, with two standard errors.
fn gains(found: &Found, model: &Model) -> String {
    let base = found.seconds[0];
    let each: Vec<(f64, f64)> = (0..found.plan.windows.len())
        .map(|window| gain(model, window))
        .map(|(gain, error)| (gain / base, SURE * error / base))
        .collect();
    let reach = |(gain, error): &(f64, f64)| gain.abs() + if error.is_finite() { *error } else { 0.0 };
    let largest = each.iter().map(reach).fold(1e-6, f64::max);
    let (middle, half) = ((LEFT + 70.0 + WIDTH) / 2.0, (WIDTH - LEFT - 90.0) / 2.0);
    let at = |value: f64| middle + value / largest * half;
    let bottom = ROW * each.len() as f64;
    let mut svg = empty(bottom + 22.0, "What each window gains");
    for value in [-largest, 0.0, largest] {
        svg.line(
            (at(value), 0.0),
            (at(value), bottom),
            if value == 0.0 { "axis" } else { "grid" },
        );
        svg.text((at(value), bottom + 15.0), Anchor::Middle, "tick", &percent(value));
    }
    for ((n, window), (gain, error)) in found.plan.windows.iter().enumerate().zip(&each) {
        let y = ROW * (n as f64 + 0.5);
        let title = format!("window {n}: {} ± {}", percent(*gain), percent(*error));
        svg.text(
            (0.0, y + 4.0),
            Anchor::Start,
            "name",
            &format!("{n} {} {}", POOLS[window.pool], bytes(window.start)),
        );
        svg.group(&colour(1 + window.pool), &title, |svg| {
            let (zero, end) = (at(0.0), at(*gain));
            svg.bar((zero.min(end), y - 5.0), ((end - zero).abs(), 10.0), "bar");
            if error.is_finite() {
                svg.line((at(gain - error), y), (at(gain + error), y), "whisker");
            }
        });
    }
    svg.finish()
}

fn row(out: &mut String, head: bool, cells: &[String]) {
    let kind = if head { "th" } else { "td" };
    let cells: String = cells
        .iter()
        .map(|cell| format!("<{kind}>{}</{kind}>", escape(cell)))
        .collect();
    put!(out, "<tr>{cells}</tr>");
}

fn table(out: &mut String, header: &[&str], rows: &[Vec<String>]) {
    put!(out, "<div class=\"scroll\"><table><thead>");
    row(
        out,
        true,
        &header.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
    );
    put!(out, "</thead><tbody>");
    rows.iter().for_each(|cells| row(out, false, cells));
    put!(out, "</tbody></table></div>");
}

fn figure(out: &mut String, caption: &str, about: &str, svg: &str) {
    let (caption, about) = (escape(caption), escape(about));
    put!(
        out,
        "<figure><figcaption>{caption}<small>{about}</small></figcaption>{svg}</figure>"
    );
}

/// The page.
pub fn page(found: &Found) -> String {
    let plan = &found.plan;
    let title = format!("Which memory pays on {} pages?", plan.kind);
    let mut out = String::new();
    put!(
        out,
        "<header><p class=\"kicker\">mega mosaic explore</p><h1>{}</h1>",
        escape(&title)
    );
    put!(
        out,
        "<p class=\"lead\"><code>{}</code></p>",
        escape(&found.command.join(" "))
    );
    let said = match &found.recommended {
        Some(one) => format!(
            "Recommended: {} ({} of {} on {} pages): {} to base pages, measured anew. Everything on them: {}.",
            options(found, one.set),
            bytes(plan.large_bytes(one.set)),
            bytes(plan.large_bytes(plan.all())),
            plan.kind,
            change_with_interval(&one.against_base),
            change_with_interval(&one.all_against_base)
        ),
        None => "Too few windows for a model: use more, or smaller pages.".to_owned(),
    };
    put!(out, "<div class=\"seen\"><p>{}</p></div></header>", escape(&said));
    put!(out, "<section><h2>What was seen</h2><div class=\"figures\">");
    let rounds = format!(
        "the quicker half of {} rounds; a dot is a layout, a line a model of the share alone",
        found.rounds
    );
    figure(
        &mut out,
        "Run time by the share of memory on large pages",
        &rounds,
        &times(found),
    );
    let windows = windows_model(found);
    if let Some(model) = windows {
        let about = "share of run time on base pages; the line is two standard errors to each side";
        figure(&mut out, "What each window gains", about, &gains(found, model));
    }
    put!(out, "</div>");
    let parts = plan.windows.iter().enumerate().map(|(n, window)| {
        let gain = windows.map(|model| gain(model, n));
        vec![
            n.to_string(),
            POOLS[window.pool].to_owned(),
            bytes(window.start),
            bytes(window.bytes),
            gain.map_or(String::new(), |(gain, error)| {
                format!("{} ± {}", seconds(gain), seconds(SURE * error))
            }),
            gain.map_or(String::new(), |gain| verdict(gain).to_owned()),
        ]
    });
    table(
        &mut out,
        &["window", "pool", "from", "size", "gain", ""],
        &parts.collect::<Vec<_>>(),
    );
    put!(out, "</section><section><h2>Each layout</h2>");
    let layouts = plan.sets.iter().enumerate().map(|(n, set)| {
        let off = |model: &Model| {
            let unseen = model.unseen[n].map(|unseen| (unseen - found.seconds[n]).abs() / found.seconds[n]);
            unseen.map_or(String::new(), percent)
        };
        let mut cells = vec![
            plan.name(*set),
            bytes(plan.large_bytes(*set)),
            seconds(found.seconds[n]),
            change(&found.against_base[n]),
        ];
        cells.extend(found.models.iter().map(off));
        cells
    });
    let off = found.models.iter().map(|model| format!("{} off by", model.form.name()));
    let header: Vec<String> = ["windows", "large", "time", "to base"]
        .map(str::to_owned)
        .into_iter()
        .chain(off)
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(&mut out, &header, &layouts.collect::<Vec<_>>());
    for model in &found.models {
        put!(
            out,
            "<p>Model <strong>{}</strong>: off by {} in the mean, {} at most (each layout predicted by the model fitted without it).</p>",
            model.form.name(),
            percent(model.mean_error),
            percent(model.largest_error)
        );
    }
    put!(out, "</section>");
    whole(&title, &out)
}
