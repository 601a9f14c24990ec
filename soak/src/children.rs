//! Child processes. They take the same locks, report their sections one per line, and are killed.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;

use distlock_support::Numbers;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Args;
use crate::bed::{BOUND, Bed, Shared, connect};
use crate::history::Section;
use crate::tally::Tally;
use crate::worker;

const CHILDREN: usize = 2;

struct Running {
    process: Child,
    reader: JoinHandle<()>,
}

pub struct Children {
    bed: Arc<Bed>,
    tasks: usize,
    seed: u64,
    running: Vec<Running>,
}

impl Children {
    pub fn start(bed: &Arc<Bed>, tasks: usize, seed: u64) -> Self {
        let mut children = Self { bed: Arc::clone(bed), tasks, seed, running: Vec::new() };
        for _ in 0..CHILDREN {
            let child = children.spawn();
            children.running.push(child);
        }
        children
    }

    fn spawn(&mut self) -> Running {
        self.seed = self.seed.wrapping_add(1 << 40);
        let urls: Vec<_> = std::iter::once(self.bed.url(0)).chain(self.bed.red_urls()).collect();
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program's path: {error}"));
        let mut process = Command::new(program)
            .args(["--child", &urls.join(","), "--tasks", &self.tasks.to_string(), "--seed", &self.seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("a child process: {error}"));
        let Some(output) = process.stdout.take() else { panic!("a child's output is a pipe") };
        let (shared, tally) = (self.bed.shared(), Arc::clone(&self.bed.tally));
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(wrong) = line.strip_prefix("WRONG: ") {
                    tally.violation(format!("in a child: {wrong}"));
                } else if let Some((name, section)) = parse(&line) {
                    tally.count("sections of children");
                    (shared.sink)(name, section);
                }
            }
        });
        Running { process, reader }
    }

    /// Kills one child and starts another.
    pub async fn kill_one(&mut self, numbers: &mut Numbers) {
        let mut child = self.running.swap_remove(numbers.below(CHILDREN as u64) as usize);
        let _ = child.process.kill().await;
        let _ = child.reader.await;
        let child = self.spawn();
        self.running.push(child);
    }

    /// Ends the children and waits for their exit.
    pub async fn end(self) {
        for mut child in self.running {
            drop(child.process.stdin.take());
            match timeout(2 * BOUND, child.process.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                ended => self.bed.tally.violation(format!("a child ended badly: {ended:?}")),
            }
            let _ = child.reader.await;
        }
    }
}

/// Parses a line of a child: name, from, to, alone (1 or 0), token, and a full stop. Returns None for a line that a
/// kill cut short.
fn parse(line: &str) -> Option<(&str, Section)> {
    let mut words = line.strip_suffix(" .")?.split(' ');
    let name = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (from, to, alone, token) = (number()?, number()?, number()? == 1, number()?);
    Some((name, Section { from, to, alone, token: (token > 0).then_some(token) }))
}

/// Runs a child: works until its standard input closes.
pub async fn serve(args: &Args) {
    let say = |name: &str, section: Section| {
        let (alone, token) = (u8::from(section.alone), section.token.unwrap_or(0));
        // The parent may be gone.
        let _ = writeln!(std::io::stdout(), "{name} {} {} {alone} {token} .", section.from, section.to);
    };
    let shared = Shared::new(Arc::new(Tally::default()), Box::new(say));
    for (number, url) in args.child.iter().enumerate() {
        let client = connect(url, false, &shared.tally).await;
        if number == 0 { &shared.clients } else { &shared.red }.write().push(client);
    }
    let workers = worker::start(&shared, args.tasks, args.seed.unwrap_or(0));
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    shared.stopped.store(true, std::sync::atomic::Ordering::Relaxed);
    worker::ended(workers, &shared.tally).await;
    let clients: Vec<_> = shared.clients.read().iter().chain(shared.red.read().iter()).cloned().collect();
    for client in clients {
        if let Err(error) = client.shutdown(BOUND).await {
            shared.tally.violation(format!("shutdown of an idle client: {error}"));
        }
    }
}
