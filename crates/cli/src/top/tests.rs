//! The screen for given samples and keys, drawn on a backend in memory.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw::{OTHER_LINES, draw};
use super::model::{MOST, Model, Sort};
use super::sample::Sample;
use super::{apply, interval, is_quit};
use crate::keys::{Found, Kind};

const WIDTH: u16 = 120;

fn owner(number: u64) -> String {
    format!("71b96ce8-2746-8c3a-9d0e-0123456789ab:{number}")
}

fn lock(name: &str, kind: Kind, waiters: i64) -> Found {
    let (key, holder) = (Bytes::from(format!("p:{name}")), Some(owner(1)));
    Found { key, kind, ttl: Some(30_000), holder, holds: 1, waiters, number: None }
}

fn held_by(number: u64, lock: &Found) -> Found {
    Found { holder: Some(owner(number)), ..lock.clone() }
}

fn after(ms: u64, start: Instant) -> Instant {
    start + Duration::from_millis(ms)
}

fn model(locks: &[Found], now: Instant) -> Model {
    let mut model = Model::new("p:", now);
    model.resize(10);
    model.scanned(locks.to_vec(), 100, now);
    model
}

fn names(model: &Model, now: Instant) -> Vec<String> {
    model.visible(now).into_iter().map(|row| row.name.clone()).collect()
}

/// The lines of a screen of 10 rows of locks.
fn screen(model: &Model, now: Instant) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, 10 + OTHER_LINES)).expect("a terminal");
    terminal.draw(|frame| draw(frame, model, now)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |line: &[ratatui::buffer::Cell]| line.iter().map(|cell| cell.symbol()).collect::<String>();
    buffer.content().chunks(usize::from(WIDTH)).map(line).collect()
}

fn press(model: &mut Model, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        assert!(!is_quit(model, KeyEvent::new(code, KeyModifiers::NONE)), "{key:?} quits");
    }
}

#[test]
fn row_shows_name_holder_age_lease_and_waiters() {
    let start = Instant::now();
    let locks = [lock("orders", Kind::Fair, 12), lock("quiet", Kind::Reentrant, 0)];
    let model = model(&locks, start);
    let lines = screen(&model, after(2_500, start));
    assert!(lines[0].starts_with("2 locks, 100 keys so far, by waiters"), "{lines:#?}");
    assert!(lines[1].starts_with("NAME"), "{lines:#?}");
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!((words[0], words[1], words[3]), ("orders", "fair", "rust"), "{lines:#?}");
    assert!(owner(1).starts_with(words[2]) && words[2].len() > 10, "{lines:#?}");
    assert_eq!(words[4..], ["1", "2.5s", "27.5s", "12", "0.0"], "{lines:#?}");
    assert!(lines[3].starts_with("quiet"), "{lines:#?}");
    assert!(lines.last().is_some_and(|line| line.starts_with("q quit")), "{lines:#?}");
}

#[test]
fn column_of_flavours_is_as_wide_as_its_texts() {
    let start = Instant::now();
    let locks = [lock("a", Kind::Reentrant, 0), lock("b", Kind::MaybeFenced, 0)];
    let lines = screen(&model(&locks, start), start);
    assert!(lines[3].contains(" reentrant or fenced 71b96ce8"), "{lines:#?}");
    assert_eq!(lines[2].find("71b96ce8"), lines[3].find("71b96ce8"), "{lines:#?}");
}

#[test]
fn changes_of_holder_are_counted_per_second() {
    let start = Instant::now();
    let one = lock("a", Kind::Reentrant, 0);
    let mut model = model(from_ref(&one), start);
    for look in 0..5 {
        let found = vec![held_by(look % 2, &one)];
        model.looked_at(from_ref(&one.key), found, after(1_000 * look, start));
    }
    let now = after(4_000, start);
    let rows = model.visible(now);
    assert!((rows[0].rate(now) - 1.0).abs() < 1e-9, "{}", rows[0].rate(now));
    assert_eq!(rows[0].age(now), 0);
}

#[test]
fn fencing_counter_shows_changes_between_two_looks() {
    let start = Instant::now();
    let fenced = |number| Found { number: Some(number), ..lock("a", Kind::MaybeFenced, 0) };
    let mut model = model(&[fenced(100)], start);
    for (look, number) in [(0, 100), (1, 150), (2, 200)] {
        model.looked_at(&[fenced(0).key], vec![fenced(number)], after(1_000 * look, start));
    }
    let now = after(2_000, start);
    assert!((model.visible(now)[0].rate(now) - 50.0).abs() < 1e-9);
}

#[test]
fn free_lock_stays_for_ten_looks() {
    let start = Instant::now();
    let one = lock("a", Kind::Reentrant, 0);
    let mut model = model(from_ref(&one), start);
    for look in 1..=10 {
        model.looked_at(from_ref(&one.key), Vec::new(), after(look, start));
        assert_eq!(names(&model, start), ["a"]);
        assert!(screen(&model, start)[2].contains("free"));
    }
    model.looked_at(from_ref(&one.key), Vec::new(), after(11, start));
    assert_eq!(names(&model, start), Vec::<String>::new());
}

#[test]
fn lock_that_a_whole_pass_did_not_see_is_forgotten() {
    let start = Instant::now();
    let (gone, stays) = (lock("gone", Kind::Reentrant, 0), lock("stays", Kind::Reentrant, 0));
    let mut model = model(&[gone, stays.clone()], start);
    apply(&mut model, Sample::PassEnded, after(1, start));
    assert_eq!(names(&model, start), ["gone", "stays"]);
    apply(&mut model, Sample::Page(vec![stays], 7), after(2, start));
    apply(&mut model, Sample::PassEnded, after(3, start));
    assert_eq!(names(&model, start), ["stays"]);
    assert!(screen(&model, start)[0].starts_with("1 lock, 7 keys"));
}

#[test]
fn free_lock_on_the_screen_outlives_a_pass_that_missed_it() {
    let start = Instant::now();
    let one = lock("a", Kind::Reentrant, 0);
    let mut model = model(from_ref(&one), start);
    apply(&mut model, Sample::PassEnded, after(1, start));
    model.looked_at(from_ref(&one.key), Vec::new(), after(2, start));
    apply(&mut model, Sample::PassEnded, after(3, start));
    assert_eq!(names(&model, start), ["a"]);
    // No look since the last pass.
    apply(&mut model, Sample::PassEnded, after(4, start));
    assert_eq!(names(&model, start), Vec::<String>::new());
}

#[test]
fn rows_are_limited() {
    let start = Instant::now();
    let locks: Vec<Found> = (0..=MOST).map(|n| lock(&n.to_string(), Kind::Reentrant, 0)).collect();
    let model = model(&locks, start);
    assert_eq!(model.sizes(), (MOST, MOST));
    assert!(screen(&model, start)[0].starts_with("10000 locks (only the first 10000)"));
}

#[test]
fn s_changes_the_order() {
    let start = Instant::now();
    let short = Found { ttl: Some(10), ..lock("b", Kind::Reentrant, 1) };
    let endless = Found { ttl: None, ..lock("a", Kind::Reentrant, 0) };
    let mut model = model(&[endless, short, lock("c", Kind::Fair, 9)], start);
    assert_eq!((model.sort, names(&model, start)), (Sort::Waiters, vec!["c".into(), "b".into(), "a".into()]));
    press(&mut model, "sss");
    assert_eq!((model.sort, names(&model, start)), (Sort::Lease, vec!["b".into(), "c".into(), "a".into()]));
    press(&mut model, "s");
    assert_eq!((model.sort, names(&model, start)), (Sort::Name, vec!["a".into(), "b".into(), "c".into()]));
}

#[test]
fn slash_filters_by_name() {
    let start = Instant::now();
    let mut model = model(&[lock("orders", Kind::Fair, 1), lock("users", Kind::Fair, 0)], start);
    press(&mut model, "/us");
    assert!(screen(&model, start)[12].starts_with("filter: us_"));
    assert!(screen(&model, start)[0].starts_with("2 locks, 1 shown"));
    // A letter that is a command otherwise.
    press(&mut model, "q");
    assert_eq!(names(&model, start), Vec::<String>::new());
    assert!(!is_quit(&mut model, KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE)));
    press(&mut model, "\n");
    assert_eq!(names(&model, start), ["users"]);
    press(&mut model, "/\x1b");
    assert_eq!(names(&model, start), ["orders", "users"]);
}

#[test]
fn only_rows_on_the_screen_are_looked_at() {
    let start = Instant::now();
    let locks: Vec<Found> = (0..30).map(|n| lock(&format!("{n:02}"), Kind::Reentrant, 0)).collect();
    let mut model = model(&locks, start);
    let first = |model: &Model| model.on_screen(start)[0].clone();
    assert_eq!((model.on_screen(start).len(), first(&model)), (10, Bytes::from_static(b"p:00")));
    for (code, expected) in [
        (KeyCode::Down, "p:01"),
        (KeyCode::PageDown, "p:11"),
        (KeyCode::PageDown, "p:20"),
        (KeyCode::Up, "p:19"),
        (KeyCode::PageUp, "p:09"),
    ] {
        assert!(!is_quit(&mut model, KeyEvent::new(code, KeyModifiers::NONE)));
        assert_eq!(first(&model), expected);
    }
}

#[test]
fn q_and_control_c_quit() {
    let mut model = model(&[], Instant::now());
    assert!(is_quit(&mut model, KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)));
    press(&mut model, "/");
    assert!(is_quit(&mut model, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn failure_is_shown_until_the_next_answer() {
    let start = Instant::now();
    let mut model = model(&[], start);
    apply(&mut model, Sample::Failed("127.0.0.1:1 is away".into()), start);
    assert!(screen(&model, start)[0].starts_with("no answer: 127.0.0.1:1 is away"));
    apply(&mut model, Sample::Looked(Vec::new(), Vec::new()), start);
    assert!(screen(&model, start)[0].starts_with("0 locks"));
}

#[test]
fn interval_has_a_lower_bound() {
    assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
    assert!(interval("99ms").is_err() && interval("x").is_err());
}
