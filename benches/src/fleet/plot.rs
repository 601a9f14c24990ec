//! The rows of the fleets, as a table for `docs/performance.md` and as a plot with logarithmic axes: clients and
//! cost.

use std::fmt::Write as _;

use crate::report::{Row, time};
use crate::subject::Who;

const COLOURS: [&str; 3] = ["#0b6e4f", "#b5179e", "#1d4ed8"];
/// The size of a panel and the margin around it, in units of the picture.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;

pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| fleet | whose | clients x waiters | server, idle | server, releasing | grants/s | server a grant | hand-over p50, p99 | MiB a client |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let Some(fleet) = row.fleet else { continue };
        let handed =
            if row.p99_us > 0.0 { format!("{}, {}", time(row.p50_us), time(row.p99_us)) } else { "-".to_owned() };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} x {} | {:.2} ms/s | {:.0} ms/s | {:.0} | {} | {handed} | {:.1} |",
            row.bench.trim_start_matches("fleet "),
            row.subject.name(),
            fleet.clients,
            fleet.waiters_each,
            fleet.idle_ms_per_s,
            fleet.releasing_ms_per_s,
            row.ops_per_s,
            time(row.server_cpu_us_per_op.unwrap_or(0.0)),
            fleet.mib_per_client,
        );
    }
    text
}

pub fn svg(rows: &[Row]) -> String {
    let (width, height) = (2.0 * (WIDTH + LEFT) + 40.0, HEIGHT + TOP + 70.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let idle = |row: &Row| row.fleet.map_or(0.0, |fleet| fleet.idle_ms_per_s);
    let grant = |row: &Row| {
        row.server_cpu_us_per_op.unwrap_or(0.0) / row.scripts_per_op.filter(|scripts| *scripts > 0.0).unwrap_or(1.0)
    };
    panel(&mut text, rows, LEFT, "server time while nobody moves, ms a second", idle);
    panel(&mut text, rows, 2.0 * LEFT + WIDTH + 10.0, "server time of a script while they release, us", grant);
    text += "</svg>\n";
    text
}

/// The axes of a panel, which are logarithmic: the clients from 10, and the powers of ten of the value.
struct Axes {
    left: f64,
    last: f64,
    low: f64,
    high: f64,
}

impl Axes {
    /// The place across the picture of this power of ten.
    fn x(&self, tens: f64) -> f64 {
        self.left + (tens - 1.0) / (self.last - 1.0) * WIDTH
    }

    /// The place down the picture of this power of ten.
    fn y(&self, tens: f64) -> f64 {
        TOP + HEIGHT - (tens - self.low) / (self.high - self.low) * HEIGHT
    }

    /// Draws the title, the lines of the powers of ten, and the numbers of clients.
    fn draw(&self, text: &mut String, rows: &[Row], title: &str) {
        let left = self.left;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{title}</text>", TOP - 16.0);
        let mut tens = self.low;
        while tens <= self.high {
            let at = self.y(tens);
            let _ = writeln!(
                text,
                "<path d=\"M{left} {at:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                at + 4.0,
                10_f64.powf(tens),
            );
            tens += 1.0;
        }
        let mut sizes: Vec<usize> = rows.iter().map(|row| row.processes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let (at, under) = (self.x((size as f64).log10()), TOP + HEIGHT + 16.0);
            let _ = writeln!(text, "<text x=\"{at:.1}\" y=\"{under}\" text-anchor=\"middle\">{size}</text>");
        }
        let under = TOP + HEIGHT + 32.0;
        let _ = writeln!(text, "<text x=\"{left}\" y=\"{under}\">clients, with 5 waiters each</text>");
    }
}

/// Draws the line of one kind and subject through these points.
fn draw_line(text: &mut String, points: &[[f64; 2]], who: Who, colour: &str) {
    let fill = if who == Who::Distlock { colour } else { "#fff" };
    let dash = if who == Who::Distlock { "" } else { " stroke-dasharray=\"5 3\"" };
    for [across, down] in points {
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "<circle cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{colour}\"/>");
    }
    let points: Vec<_> = points.iter().map(|[across, down]| format!("{across:.1},{down:.1}")).collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
        points.join(" ")
    );
}

/// Draws a panel with a line for each kind and subject. Redisson's lines are dashed, with open points.
fn panel(text: &mut String, rows: &[Row], left: f64, title: &str, of: impl Fn(&Row) -> f64) {
    // A value below 0.01 counts as 0.01, because the axis is logarithmic.
    let up = |row: &Row| of(row).max(0.01).log10();
    let right = |row: &Row| (row.processes as f64).log10();
    let low = rows.iter().map(up).fold(f64::INFINITY, f64::min).floor();
    let high = rows.iter().map(up).fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
    let last = rows.iter().map(right).fold(2.0, f64::max);
    let axes = Axes { left, last, low, high };
    axes.draw(text, rows, title);
    let (mut key, below) = (0.0, TOP + HEIGHT + 52.0);
    for (at, (bench, _)) in super::KINDS.iter().enumerate() {
        let mut is_there = false;
        for who in [Who::Distlock, Who::Redisson] {
            let own = rows.iter().filter(|row| row.bench == *bench && row.subject == who);
            let points: Vec<_> = own.map(|row| [axes.x(right(row)), axes.y(up(row))]).collect();
            if points.is_empty() {
                continue;
            }
            is_there = true;
            draw_line(text, &points, who, COLOURS[at]);
        }
        if is_there {
            let (name, from) = (bench.trim_start_matches("fleet "), left + key);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "<text x=\"{from}\" y=\"{below}\" fill=\"{}\">{name}</text>", COLOURS[at]);
            key += 16.0 + 6.0 * name.len() as f64;
        }
    }
    if rows.iter().any(|row| row.subject == Who::Redisson) {
        let _ = writeln!(text, "<text x=\"{}\" y=\"{below}\">dashed, open points: Redisson</text>", left + key);
    }
}
