//! Formats the figures as a table.

use std::fmt::Write as _;

use crate::args::Language;
use crate::events::Kind;
use crate::figures::{Group, Row};

const COLUMNS: usize = 16;

const HEAD: [&str; COLUMNS] = [
    "fleet",
    "seed",
    "who",
    "sections",
    "per s",
    "J : R",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "pause ms",
    "scripts",
    "overlaps",
    "deaths",
    "freezes",
    "failures",
    "unfinished",
];

/// Formats a line for each group of workers. The first line of a run also has the figures of the whole run.
pub fn table(rows: &[Row]) -> String {
    let mut cells = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.iter().flat_map(lines));
    let width = |column: usize| cells.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &cells {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if column < 3 { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

fn lines(row: &Row) -> Vec<[String; COLUMNS]> {
    let mut lines: Vec<_> = row.groups.iter().map(of_group).collect();
    if let Some(first) = lines.first_mut() {
        row.fleet.name().clone_into(&mut first[0]);
        first[1] = row.seed.map_or_else(|| "WORST".to_owned(), |seed| seed.to_string());
        first[4] = format!("{:.0}", row.sections_per_s);
        first[5] = ratio(row);
        first[9] = format!("{:.1}", row.pause_ms);
        first[10] = format!("{:.2}", row.scripts_per_section);
        for (cell, count) in
            first[11..].iter_mut().zip([row.overlaps, row.deaths, row.freezes, row.failures, row.unfinished])
        {
            *cell = count.to_string();
        }
    }
    lines
}

/// Formats the shares of both languages in percent. In a row of worst figures, each is the language's lowest.
fn ratio(row: &Row) -> String {
    let share = |language| {
        let group = row.groups.iter().find(|group| group.language == Some(language) && group.kind.is_none());
        group.map(|group| 100.0 * group.share)
    };
    let both = share(Language::Java).zip(share(Language::Ours));
    both.map_or_else(|| "-".to_owned(), |(java, ours)| format!("{java:.0} : {ours:.0}"))
}

fn of_group(group: &Group) -> [String; COLUMNS] {
    let mut line: [String; COLUMNS] = std::array::from_fn(|_| String::new());
    let who = group.language.map_or("all", Language::name);
    line[2] = match group.kind {
        None => who.to_owned(),
        Some(Kind::Read) => format!("{who} reads"),
        Some(Kind::Write) => format!("{who} writes"),
        Some(Kind::Exclusive) => format!("{who} exclusive"),
    };
    line[3] = group.sections.to_string();
    for (cell, ms) in line[6..].iter_mut().zip([group.p50_ms, group.p99_ms, group.worst_ms]) {
        *cell = format!("{ms:.1}");
    }
    line
}
