//! Five processes meet at a barrier, and all start when the last one has arrived. In the second round one process dies
//! while it waits, the others get `Error::Broken`, and with a new process they meet again.
//!
//! `cargo run --example start_barrier`

mod private_server;

use std::error::Error as StdError;
use std::time::{Duration, Instant};

use distlock::{Barrier, Client, Error};
use distlock_support::{Admin, Child, child};

type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

const RUNNERS: usize = 5;
/// The lease of a waiting process. Short, so that a death is noticed soon; the default is 30 s.
const LEASE: Duration = Duration::from_secs(3);
/// The limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(url: &str, prefix: &str) -> distlock::Result<Client> {
    Client::builder(url).name_prefix(prefix).watchdog(LEASE).command_timeout(LEASE / 3).connect().await
}

/// Runs a child process: arrives at the barrier each time that the parent says so.
async fn runner() -> Outcome<()> {
    let client = connect(&std::env::var("URL")?, &std::env::var("PREFIX")?).await?;
    let start = client.barrier("start", RUNNERS as u32);
    child::say("ready");
    while child::hear().await == "arrive" {
        match start.wait_for(PATIENCE).await {
            // The last one that arrives leads: the place for work that only one process must do.
            Ok(Some(wait)) if wait.is_leader() => child::say("leads"),
            Ok(Some(_)) => child::say("starts"),
            Ok(None) => child::say("waited in vain"),
            // A process died while it waited. To start anyway, the others arrive again.
            Err(Error::Broken { name }) => child::say(&format!("finds {name} broken")),
            Err(error) => return Err(error.into()),
        }
    }
    client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

async fn spawn(server: &private_server::Server) -> Child {
    let mut child = Child::spawn("runner", &[("URL", server.url.as_str()), ("PREFIX", server.prefix.as_str())]);
    child.expect("ready").await;
    child
}

/// Lets all runners except the last one arrive, and waits until they wait. If one had started already, it would not wait.
async fn all_but_one_wait(start: &Barrier, runners: &mut [Child]) -> Outcome<()> {
    for runner in &mut runners[..RUNNERS - 1] {
        runner.tell("arrive");
    }
    let began = Instant::now();
    while start.waiting().await? != RUNNERS as u64 - 1 {
        if began.elapsed() > PATIENCE {
            return Err(format!("{} processes wait, and not {}", start.waiting().await?, RUNNERS - 1).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Checks what a runner says.
async fn says(runner: &mut Child, expected: &str) -> Outcome<()> {
    match runner.line().await {
        Some(line) if line == expected => Ok(()),
        Some(line) => Err(format!("a process {line}, and not: {expected}").into()),
        None => Err(format!("a process failed: {}", runner.output()).into()),
    }
}

/// Lets the last runner arrive, and checks that all start this round.
async fn all_start(runners: &mut [Child], round: u64) -> Outcome<()> {
    let Some((last, others)) = runners.split_last_mut() else { return Err("nobody runs".into()) };
    println!("round {round}: {} processes wait; none has started", others.len());
    last.tell("arrive");
    says(last, "leads").await?;
    for runner in others {
        says(runner, "starts").await?;
    }
    println!("round {round}: the last process has arrived, and all {RUNNERS} have started");
    Ok(())
}

async fn race(server: &private_server::Server) -> Outcome<()> {
    let client = connect(&server.url, &server.prefix).await?;
    let start = client.barrier("start", RUNNERS as u32);
    let mut runners = Vec::new();
    for _ in 0..RUNNERS {
        runners.push(spawn(server).await);
    }

    all_but_one_wait(&start, &mut runners).await?;
    all_start(&mut runners, 0).await?;

    all_but_one_wait(&start, &mut runners).await?;
    let died = Instant::now();
    runners.remove(0).kill9();
    println!("round 1: one of {} waiting processes is killed", RUNNERS - 1);
    for runner in &mut runners[..RUNNERS - 2] {
        says(runner, "finds start broken").await?;
    }
    println!("round 1: the others got Error::Broken after {:.1?}; its lease is {LEASE:?}", died.elapsed());

    runners.push(spawn(server).await);
    all_but_one_wait(&start, &mut runners).await?;
    all_start(&mut runners, 2).await?;

    for mut runner in runners {
        runner.tell("end");
        if !runner.wait().await.success() {
            return Err(format!("a process failed: {}", runner.output()).into());
        }
    }
    client.shutdown(Duration::from_secs(5)).await?;
    let state = format!("distlock_barrier:{{{}start}}", server.prefix);
    let _: () = Admin::from_url(&server.url).await.cmd(&["DEL", &state]).await;
    Ok(())
}

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if child::is_child() {
        child::init();
        return runtime.block_on(runner());
    }
    let server = private_server::start_unless_given();
    runtime.block_on(race(&server))
}
