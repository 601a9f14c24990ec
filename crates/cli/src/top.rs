//! `distlock top`: a live view of the locks that are held or waited for.
//!
//! A slow scan finds locks, at about 30 000 keys a second. Only the locks on the screen are looked at each interval, by
//! one command for each server. So the view costs the servers little, however many keys they have.
//!
//! `AGE` is the time since this holder was first seen. `WAITERS` is the length of a fair lock's queue, and for other
//! locks the number of processes that subscribe to the lock's channel. `CHANGES/S` counts changes of holder between two
//! looks, so it is at most one for each interval. For fenced locks, the fencing counter shows all changes.
//!
//! Exit status: 0 after `q`; 128 and the signal's number after TERM, INT or HUP.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::connect::{Servers, Target};
use crate::exit::{Failure, SIGNALLED};
use crate::keys::look;

mod draw;
mod model;
mod sample;
#[cfg(test)]
mod tests;

use model::Model;
use sample::Sample;

/// Time after which ages and leases are drawn again.
const REDRAW: Duration = Duration::from_millis(250);
/// Shortest interval.
const SHORTEST: Duration = Duration::from_millis(100);

/// Arguments of `top`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Time between two looks at the locks on the screen
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Only names that match this pattern, as in SCAN: * ? [ab]
    #[arg(long = "match", value_name = "GLOB")]
    pattern: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if interval < SHORTEST { Err("at least 100ms".to_owned()) } else { Ok(interval) }
}

/// Runs the command.
pub async fn main(args: Args, target: &Target) -> Result<u8, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Usage("top needs a terminal: `distlock list` prints the locks once".to_owned()));
    }
    let servers = target.servers().await?;
    let outcome = view(&args, &servers, target.prefix()).await;
    servers.close().await;
    outcome
}

/// Restores the terminal when it is dropped. On a panic, the hook of `ratatui::try_init` restores it first.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn view(args: &Args, servers: &Servers, prefix: &str) -> Result<u8, Failure> {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let (mut term, mut int, mut hup) = (signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?);
    let _restore = Restore;
    let mut terminal = ratatui::try_init()?;
    let mut keys = keys();
    let (samples, mut sampled) = mpsc::channel(64);
    let (screen, watched) = watch::channel(Vec::new());
    let pattern = look::pattern(prefix, args.pattern.as_deref());
    let scanning = sample::scan(servers, &pattern, samples.clone());
    let looking = sample::look(servers, args.interval, watched, samples);
    tokio::pin!(scanning, looking);
    let mut redraw = tokio::time::interval(REDRAW);
    let mut model = Model::new(prefix, Instant::now());
    loop {
        tokio::select! {
            () = &mut scanning => return Ok(0),
            () = &mut looking => return Ok(0),
            Some(sample) = sampled.recv() => {
                apply(&mut model, sample, Instant::now());
                continue;
            }
            event = keys.recv() => match event {
                Some(Event::Key(key)) if is_quit(&mut model, key) => return Ok(0),
                Some(_) => {}
                // The terminal is gone.
                None => return Ok(SIGNALLED + number(kinds[2])),
            },
            _ = redraw.tick() => {}
            _ = term.recv() => return Ok(SIGNALLED + number(kinds[0])),
            _ = int.recv() => return Ok(SIGNALLED + number(kinds[1])),
            _ = hup.recv() => return Ok(SIGNALLED + number(kinds[2])),
        }
        show(&mut terminal, &mut model, &screen)?;
    }
}

fn number(signal: SignalKind) -> u8 {
    u8::try_from(signal.as_raw_value()).unwrap_or(0)
}

fn apply(model: &mut Model, sample: Sample, now: Instant) {
    match sample {
        Sample::Page(found, looked) => model.scanned(found, looked, now),
        Sample::PassEnded => model.pass_ended(now),
        Sample::Looked(keys, found) => model.looked_at(&keys, found, now),
        Sample::Failed(text) => model.error = Some(text),
    }
}

/// Draws, and tells the sampler which locks are on the screen.
fn show(terminal: &mut DefaultTerminal, model: &mut Model, screen: &watch::Sender<Vec<Bytes>>) -> Result<(), Failure> {
    let now = Instant::now();
    model.resize(usize::from(terminal.size()?.height.saturating_sub(draw::OTHER_LINES)));
    terminal.draw(|frame| draw::draw(frame, model, now))?;
    screen.send_replace(model.on_screen(now));
    Ok(())
}

/// Keys and other events of the terminal. The channel closes when the terminal is gone.
fn keys() -> mpsc::UnboundedReceiver<Event> {
    let (out, events) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while !out.is_closed() {
            match event::poll(SHORTEST) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(event) => {
                        let _ = out.send(event);
                    }
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    });
    events
}

/// Applies a key. Returns true if it quits.
fn is_quit(model: &mut Model, key: KeyEvent) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    // In raw mode, the terminal sends no INT.
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return key.code == KeyCode::Char('c');
    }
    match (model.is_typing, key.code) {
        (true, KeyCode::Enter) => model.is_typing = false,
        (true, KeyCode::Esc) => {
            model.is_typing = false;
            model.filter.clear();
        }
        (true, KeyCode::Backspace) => model.type_letter(None),
        (true, KeyCode::Char(letter)) => model.type_letter(Some(letter)),
        (false, KeyCode::Char('q')) => return true,
        (false, KeyCode::Char('/')) => model.is_typing = true,
        (false, KeyCode::Char('s')) => model.next_sort(),
        (_, KeyCode::Up) => model.scroll(-1),
        (_, KeyCode::Down) => model.scroll(1),
        (_, KeyCode::PageUp) => model.page(-1),
        (_, KeyCode::PageDown) => model.page(1),
        _ => {}
    }
    false
}
