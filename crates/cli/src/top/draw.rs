//! Draws the model.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row as Cells, Table};

use super::model::{MOST, Model, Row};
use crate::keys::Language;
use crate::keys::show::{count, lasts, safe};

/// Lines that are no rows of locks: the summary, the titles, the keys.
pub const OTHER_LINES: u16 = 3;

/// Least width of the flavours' column.
const FLAVOUR: usize = 9;

const TITLES: [&str; 9] = ["NAME", "FLAVOUR", "HOLDER", "LANG", "HOLDS", "AGE", "LEASE", "WAITERS", "CHANGES/S"];

/// Draws one frame.
pub fn draw(frame: &mut Frame<'_>, model: &Model, now: Instant) {
    let parts = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(summary(model), top);
    let visible = model.visible(now);
    let flavour = visible.iter().map(|row| row.found.kind.as_str().len()).fold(FLAVOUR, usize::max);
    let rows = visible.into_iter().map(|row| cells(row, now));
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(u16::try_from(flavour).unwrap_or(u16::MAX)),
        Constraint::Fill(2),
        Constraint::Length(4),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(9),
    ];
    let titles = TITLES.into_iter().enumerate().map(|(column, title)| cell(title.to_owned(), column));
    let table = Table::new(rows, widths).header(Cells::new(titles).style(Style::new().bold()));
    frame.render_widget(table, middle);
    frame.render_widget(keys(model), bottom);
}

fn summary(model: &Model) -> Line<'static> {
    if let Some(error) = &model.error {
        return Line::from(format!("no answer: {}", safe(error))).red();
    }
    let (all, matching) = model.sizes();
    let mut text = count(all, "lock");
    if matching < all {
        text += &format!(", {matching} shown");
    }
    if model.left_out {
        text += &format!(" (only the first {MOST})");
    }
    text += &match model.keys {
        Some(keys) => format!(", {keys} keys"),
        None => format!(", {} keys so far", model.looked),
    };
    Line::from(format!("{text}, by {}", model.sort.as_str()))
}

fn keys(model: &Model) -> Line<'static> {
    if model.is_typing {
        return Line::from(format!("filter: {}_   Enter keeps it, Esc drops it", safe(&model.filter)));
    }
    let mut text = String::from("q quit   / filter   s sort   Up Down PgUp PgDn scroll");
    if !model.filter.is_empty() {
        text += &format!("   filter: {}", safe(&model.filter));
    }
    Line::from(text).dim()
}

/// A cell; numbers are aligned to the right.
fn cell(text: String, column: usize) -> Cell<'static> {
    let text = Text::from(text);
    Cell::from(if column < 4 { text } else { text.right_aligned() })
}

fn cells(row: &Row, now: Instant) -> Cells<'static> {
    let found = &row.found;
    let holder = if row.free > 0 { "free".to_owned() } else { found.shown_holder() };
    let is_held = |text: String| if row.free > 0 { String::new() } else { text };
    let texts = [
        safe(&row.name),
        found.kind.as_str().to_owned(),
        holder,
        is_held(row.language().map_or("", Language::as_str).to_owned()),
        is_held(found.holds.to_string()),
        is_held(lasts(Some(row.age(now)))),
        is_held(lasts(row.ttl(now))),
        found.waiters.to_string(),
        format!("{:.1}", row.rate(now)),
    ];
    let style = match (row.free, found.waiters) {
        (0, 0) => Style::new(),
        (0, _) => Style::new().yellow(),
        _ => Style::new().dim(),
    };
    Cells::new(texts.into_iter().enumerate().map(|(column, text)| cell(text, column))).style(style)
}
