//! A fleet: many clients with a few waiters each, all for one name. Measures the load of the server while all clients
//! wait, the cost of a grant while they release, and the time that the lock is free between two holders.

mod crew;
mod plot;

use std::path::Path;
use std::time::{Duration, Instant};

use distlock_support::agent::{Agent, AgentOptions};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::bed::Bed;
use crate::cpu;
use crate::drive::Kind;
use crate::report::Row;
use crate::subject::Who;
use crate::worker::Worker;

pub use crew::{Crew, Stay};

/// Waiters of each client.
pub const WAITERS: usize = 5;
/// Maximum number of clients in a process.
const IN_A_PROCESS: usize = 250;
/// Each Java client has its own process. With more processes per processor, they do not answer in time.
const JAVA_A_PROCESSOR: usize = 25;
const NAME: &str = "fleet";
const KINDS: [(&str, Kind); 3] =
    [("fleet reentrant", Kind::Reentrant), ("fleet fair", Kind::Fair), ("fleet rw", Kind::Mix(80))];

/// The part of a fleet that a worker runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub clients: usize,
    pub kind: Kind,
    pub name: String,
}

/// Figures of the bench `fleet` only.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FleetFigures {
    pub clients: usize,
    pub waiters_each: usize,
    /// Processor time of the server per second, while all clients wait and while they release.
    pub idle_ms_per_s: f64,
    pub releasing_ms_per_s: f64,
    /// Resident memory of the clients' processes per client, including its waiters.
    pub mib_per_client: f64,
}

/// Measures every kind with every size, and writes the plot.
pub async fn fleets(bed: &Bed) -> Vec<Row> {
    raise_descriptors();
    let (sizes, length): (&[usize], _) = if bed.args.quick {
        (&[10, 100], Duration::from_secs(3))
    } else {
        (&[10, 50, 100, 300, 1000], Duration::from_secs(8))
    };
    let mut rows = Vec::new();
    for (bench, kind) in KINDS {
        for &clients in sizes {
            if bed.args.subjects.contains(&Who::Distlock) {
                rows.push(ours(bed, bench, kind, clients, length).await);
                tell(rows.last());
            }
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let most = if bed.args.quick { sizes[0] } else { JAVA_A_PROCESSOR * processors };
            if bed.args.subjects.contains(&Who::Redisson) && clients <= most {
                let row = java(bed, bench, kind, clients, length).await;
                tell(row.as_ref());
                rows.extend(row);
            }
        }
    }
    if rows.is_empty() {
        return rows;
    }
    println!("{}", plot::markdown(&rows));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs/fleet.svg");
    // The figures of a quick run are not for the docs.
    let path = if bed.args.quick { bed.args.json.with_file_name("fleet.svg") } else { path };
    let written =
        path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, plot::svg(&rows)));
    match written {
        Ok(()) => println!("The plot: {}", path.display()),
        Err(error) => eprintln!("{}: {error}", path.display()),
    }
    rows
}

/// Prints a row at once, since a large fleet takes a minute.
fn tell(row: Option<&Row>) {
    let Some((row, fleet)) = row.and_then(|row| Some((row, row.fleet?))) else { return };
    eprintln!(
        "  {} {:?}, {} clients: {:.1} ms/s idle, {:.0} ms/s releasing, {:.0} grants/s, p99 {:.1} ms",
        row.bench,
        row.subject,
        fleet.clients,
        fleet.idle_ms_per_s,
        fleet.releasing_ms_per_s,
        row.ops_per_s,
        row.p99_us / 1e3,
    );
}

/// Raises the limit of open files: each client has two connections, with a descriptor at either end.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() || limit.current.is_some_and(|most| most < 4096) {
        eprintln!("fleet: few descriptors are allowed (ulimit -n): large fleets may not connect");
    }
}

/// The server's work in a time window.
struct Window {
    server_s: f64,
    scripts: f64,
    seconds: f64,
}

async fn watch(bed: &Bed, length: Duration) -> Window {
    let scripts = async || bed.admin.calls("evalsha").await + bed.admin.calls("eval").await;
    let calls = scripts().await;
    let (began, before) = (Instant::now(), cpu::seconds(bed.server.pid()));
    tokio::time::sleep(length).await;
    let (server_s, seconds) = (cpu::seconds(bed.server.pid()) - before, began.elapsed().as_secs_f64());
    Window { server_s, scripts: scripts().await.saturating_sub(calls) as f64, seconds }
}

/// Acquires the lock, so that all other clients wait.
async fn holder(bed: &Bed, kind: Kind) -> (distlock::Client, distlock::Guard) {
    let client = distlock::Client::connect(&bed.server.url()).await.unwrap_or_else(|error| panic!("distlock: {error}"));
    let flavour = match kind {
        Kind::Fair => distlock::Flavour::Fair,
        Kind::Mix(_) => distlock::Flavour::Write,
        _ => distlock::Flavour::Reentrant,
    };
    let guard = client.lock(flavour, NAME).lock().await.unwrap_or_else(|error| panic!("distlock: {error}"));
    (client, guard)
}

async fn ours(bed: &Bed, bench: &'static str, kind: Kind, clients: usize, length: Duration) -> Row {
    let (client, guard) = holder(bed, kind).await;
    let processes = clients.div_ceil(IN_A_PROCESS).max(2);
    let mut workers = Vec::new();
    for at in 0..processes {
        let share = clients / processes + usize::from(at < clients % processes);
        let mut worker = Worker::start(Who::Distlock, &bed.server.url(), 1).await;
        let wanted = Wanted { clients: share, kind, name: NAME.to_owned() };
        worker.fleet(&wanted).await;
        workers.push(worker);
    }
    // Let the commands of the start finish.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = watch(bed, length).await;
    let pids: Vec<u32> = workers.iter().filter_map(Worker::pid).collect();
    let mib = pids.iter().map(|pid| resident_mib(*pid)).sum::<f64>() / clients as f64;
    let cpu_before = cpu::seconds_of(&pids);
    guard.unlock().await.map_or_else(|error| panic!("distlock: {error}"), drop);
    let before = distlock_support::agent::monotonic_ns();
    let busy = watch(bed, length).await;
    let after = distlock_support::agent::monotonic_ns();
    let cpu_s = cpu::seconds_of(&pids) - cpu_before;
    let mut stays: Vec<Stay> = Vec::new();
    for worker in &mut workers {
        stays.extend(worker.disband().await);
    }
    for worker in workers {
        worker.close().await;
    }
    client.shutdown(Duration::from_secs(60)).await.unwrap_or_else(|error| panic!("distlock: {error}"));
    let _: () = bed.admin.cmd(&["FLUSHALL"]).await;
    stays.retain(|stay| (before..after).contains(&stay.0));
    let mut handed = crew::handed(&mut stays);
    handed.sort_by(f64::total_cmp);
    let at = |part: f64| handed.get((handed.len() as f64 * part) as usize).or(handed.last()).copied().unwrap_or(0.0);
    let figures = figures(clients, &idle, &busy, mib);
    Row {
        p50_us: at(0.5),
        p99_us: at(0.99),
        worst_us: at(1.0),
        ..row(bench, Who::Distlock, clients, stays.len() as f64, cpu_s, &busy, figures)
    }
}

async fn java(bed: &Bed, bench: &'static str, kind: Kind, clients: usize, length: Duration) -> Option<Row> {
    let (client, guard) = holder(bed, kind).await;
    let mut agents = Vec::new();
    let url = bed.server.url();
    // Start a few at a time, because each start uses all processors.
    while agents.len() < clients {
        let some = (clients - agents.len()).min(8);
        let options = || AgentOptions { heap_mb: 64, ..AgentOptions::default() };
        agents.extend(futures::future::join_all((0..some).map(|_| Agent::start(&url, options()))).await);
    }
    let settle = Duration::from_secs(2);
    let calls: Vec<_> = agents
        .iter()
        .map(|agent| {
            agent.start_call(json!({
                "op": "bench_contended",
                "flavour": kind.flavour(),
                "reads": if let Kind::Mix(reads) = kind { reads } else { 0 },
                "name": NAME,
                "names": [],
                "servers": [],
                "turn": false,
                "tasks": WAITERS,
                "seconds": (settle + length * 2).as_secs_f64(),
                "hold_us": 0,
            }))
        })
        .collect();
    tokio::time::sleep(settle).await;
    let idle = watch(bed, length).await;
    let pids: Vec<u32> = agents.iter().map(Agent::pid).collect();
    let mib = pids.iter().map(|pid| resident_mib(*pid)).sum::<f64>() / clients as f64;
    let cpu_before = cpu::seconds_of(&pids);
    guard.unlock().await.map_or_else(|error| panic!("distlock: {error}"), drop);
    let busy = watch(bed, length).await;
    let cpu_s = cpu::seconds_of(&pids) - cpu_before;
    let (mut grants, mut failed) = (0, None);
    for call in calls {
        match call.await {
            Ok(reply) => grants += crate::java::told(&reply.value).counts.iter().sum::<u64>(),
            Err(error) => failed = Some(error),
        }
    }
    futures::future::join_all(agents.iter().map(Agent::close)).await;
    client.shutdown(Duration::from_secs(60)).await.unwrap_or_else(|error| panic!("distlock: {error}"));
    let _: () = bed.admin.cmd(&["FLUSHALL"]).await;
    if let Some(error) = failed {
        eprintln!("{bench}: no row for Redisson with {clients} clients, one of which failed: {error}");
        return None;
    }
    // Each thread finishes its last section after the end. So the count is too high by at most one section per thread.
    let row = row(bench, Who::Redisson, clients, grants as f64, cpu_s, &busy, figures(clients, &idle, &busy, mib));
    Some(row)
}

fn figures(clients: usize, idle: &Window, busy: &Window, mib_per_client: f64) -> FleetFigures {
    let rate = |window: &Window| window.server_s * 1e3 / window.seconds;
    FleetFigures {
        clients,
        waiters_each: WAITERS,
        idle_ms_per_s: rate(idle),
        releasing_ms_per_s: rate(busy),
        mib_per_client,
    }
}

fn row(
    bench: &'static str,
    subject: Who,
    clients: usize,
    grants: f64,
    cpu_s: f64,
    busy: &Window,
    figures: FleetFigures,
) -> Row {
    Row {
        bench,
        subject,
        processes: clients,
        tasks: WAITERS,
        ops_per_s: grants / busy.seconds,
        p50_us: 0.0,
        p99_us: 0.0,
        worst_us: 0.0,
        share_min: 0.0,
        share_max: 0.0,
        commands_per_op: 0.0,
        scripts_per_op: Some(busy.scripts / grants.max(1.0)),
        cpu_us_per_op: cpu_s * 1e6 / grants.max(1.0),
        server_cpu_us_per_op: Some(busy.server_s * 1e6 / grants.max(1.0)),
        pool: None,
        distlock_ahead: None,
        held: None,
        fleet: Some(figures),
    }
}

fn resident_mib(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: f64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * rustix::param::page_size() as f64 / (1024.0 * 1024.0)
}
