//! A client in its own process: this program, started as a worker.
//!
//! A worker reads one JSON request per line from its standard input, and answers with one line of JSON. It ends when
//! its input closes, so it never outlives its parent.

use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::drive::{Plan, Sample};
use crate::fleet::{Crew, Stay, Wanted};
use crate::held::{Held, Hoard, Round};
use crate::latch::{self, Seen, Work};
use crate::subject::{Any, Who};

/// The first argument of a worker.
pub const MARK: &str = "__worker";

/// Time limit of an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Answered twice: when ready; and with the sample, after the next line has given the start signal.
    Run(Plan),
    /// Wait for latches.
    Watch(Work),
    /// Acquire this many locks and keep them.
    Hold(usize),
    Round,
    /// Connect many more clients, and let all their waiters wait.
    Fleet(Wanted),
    /// Close the clients of `Fleet`.
    Disband,
    /// Close the client and end the process.
    Close,
}

/// A worker as its parent sees it. Killed when dropped.
#[derive(Debug)]
pub struct Worker {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts a worker and waits until it is connected.
    pub async fn start(who: Who, url: &str, pool: usize) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program's path: {error}"));
        let mut process = Command::new(program)
            .args([MARK, who.name(), url, &pool.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("a worker process: {error}"));
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            panic!("a worker's input and output are pipes")
        };
        let mut worker = Self { process, input, output: BufReader::new(output).lines() };
        worker.answer::<()>().await;
        worker
    }

    async fn send(&mut self, line: &str) {
        let sent = self.input.write_all(format!("{line}\n").as_bytes()).await;
        sent.unwrap_or_else(|error| panic!("a worker does not listen: {error}"));
    }

    async fn ask(&mut self, request: &Request) {
        let line = serde_json::to_string(request).unwrap_or_else(|error| panic!("{error} in {request:?}"));
        self.send(&line).await;
    }

    async fn answer<T: DeserializeOwned>(&mut self) -> T {
        let line = tokio::time::timeout(ANSWER_WITHIN, self.output.next_line()).await;
        let Ok(Ok(Some(line))) = line else { panic!("a worker gave no answer: {line:?}") };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in a worker's answer"))
    }

    /// Returns the process id, unless the process has ended.
    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Measures in several processes at the same time.
    pub async fn run_all(workers: &mut [Self], plan: &Plan) -> Sample {
        for worker in workers.iter_mut() {
            worker.ask(&Request::Run(plan.clone())).await;
        }
        for worker in workers.iter_mut() {
            worker.answer::<()>().await;
        }
        for worker in workers.iter_mut() {
            worker.send("go").await;
        }
        let mut parts = Vec::with_capacity(workers.len());
        for worker in workers.iter_mut() {
            parts.push(worker.answer().await);
        }
        Sample::together(parts)
    }

    /// Waits for latches in several processes. `work` tells the work of each process.
    pub async fn watch_all(workers: &mut [Self], work: impl Fn(usize) -> Work) -> Vec<Seen> {
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.ask(&Request::Watch(work(number))).await;
        }
        let mut parts = Vec::with_capacity(workers.len());
        for worker in workers.iter_mut() {
            parts.push(worker.answer().await);
        }
        parts
    }

    pub async fn hold(&mut self, count: usize) -> Held {
        self.ask(&Request::Hold(count)).await;
        self.answer().await
    }

    pub async fn round(&mut self) -> Round {
        self.ask(&Request::Round).await;
        self.answer().await
    }

    pub async fn fleet(&mut self, wanted: &Wanted) {
        self.ask(&Request::Fleet(wanted.clone())).await;
        self.answer().await
    }

    /// Closes these clients. Returns when each waiter was inside.
    pub async fn disband(&mut self) -> Vec<Stay> {
        self.ask(&Request::Disband).await;
        self.answer().await
    }

    /// Closes the client and ends the process. Only distlock releases all its holds.
    pub async fn close(mut self) {
        self.ask(&Request::Close).await;
        self.answer::<()>().await;
        let ended = tokio::time::timeout(ANSWER_WITHIN, self.process.wait()).await;
        assert!(matches!(&ended, Ok(Ok(status)) if status.success()), "a worker ended badly: {ended:?}");
    }
}

pub async fn serve(mut words: impl Iterator<Item = String>) {
    let who = words.next().and_then(|name| Who::named(&name));
    let pool = |words: &mut dyn Iterator<Item = String>| words.next().and_then(|pool| pool.parse().ok());
    let (Some(who), Some(url), Some(pool)) = (who, words.next(), pool(&mut words)) else {
        panic!("a worker is told its subject, a URL and the size of its pool")
    };
    let client = Any::connect(who, &url, pool).await;
    let (mut hoard, mut crew) = (Hoard::default(), Crew::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    say(&());
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Request::Run(plan)) => {
                say(&());
                if !matches!(lines.next_line().await, Ok(Some(_))) {
                    return;
                }
                say(&client.run(&plan).await);
            }
            Ok(Request::Watch(work)) => say(&latch::watch(&client, &work).await),
            Ok(Request::Hold(count)) => say(&hoard.fill(&client, count).await),
            Ok(Request::Round) => say(&hoard.renew(&client).await),
            Ok(Request::Fleet(wanted)) => {
                crew = Crew::gather(&url, &wanted).await;
                say(&());
            }
            Ok(Request::Disband) => say(&std::mem::take(&mut crew).disband().await),
            Ok(Request::Close) => {
                client.close().await;
                say(&());
                return;
            }
            Err(error) => panic!("a worker was told {line}: {error}"),
        }
    }
}

fn say<T: Serialize>(answer: &T) {
    match serde_json::to_string(answer) {
        Ok(line) => println!("{line}"),
        Err(error) => panic!("{error} in an answer"),
    }
}
