//! Which replica runs a job.

use bed::cost::sent;
use bed::{Bed, eventually, idle, ms, secs};
use distlock::Error;
use distlock_support::{Child, Numbers, child};
use futures::future::join_all;

use crate::{NAME, jobs, open, runs};

/// Five replicas tick at about the same time, 200 times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_five_replicas_runs_the_job_of_each_tick() {
    jobs(async |bed| {
        let clients = join_all((0..5).map(|_| bed.client())).await;
        let mut numbers = Numbers::new(1);
        for tick in 0..200 {
            let ticks = clients.iter().map(|client| {
                let late = numbers.between(0, 4);
                async move {
                    tokio::time::sleep(late).await;
                    runs(client).await
                }
            });
            let ran = join_all(ticks.collect::<Vec<_>>()).await;
            assert_eq!(ran.iter().filter(|ran| **ran).count(), 1, "tick {tick}: {ran:?}");
            open(bed).await;
        }
    })
    .await;
}

#[tokio::test]
async fn output_of_the_work_is_returned_where_it_ran() {
    jobs(async |bed| {
        let (client, other) = (bed.client().await, bed.client().await);
        let here = client.once(NAME, secs(0), secs(600), async { runs(&other).await }).await.unwrap();
        assert_eq!(here, Some(false), "the other replica has run it, too");
        let failed = client.once(NAME, secs(600), secs(600), async { Err::<(), _>("broken") }).await.unwrap();
        assert_eq!((failed, runs(&other).await), (Some(Err("broken")), false));
        open(bed).await;
    })
    .await;
}

/// The process is killed while it works.
#[tokio::test]
async fn job_of_killed_process_runs_elsewhere_after_at_most() {
    jobs(async |bed| {
        let client = bed.client().await;
        let mut process = Child::spawn("replicas::process_to_be_killed", &[("URL", &bed.server.url())]);
        process.expect("works").await;
        process.kill9();
        assert!(!runs(&client).await, "at_most has not passed");
        let left = bed.admin.pttl(NAME).await;
        assert!(0 < left && left <= 3_600_000, "{left} ms left of an hour");
        // Makes `at_most` end now.
        assert!(bed.admin.cmd::<bool>(&["PEXPIRE", NAME, "1"]).await);
        eventually("the job runs here", async || runs(&client).await).await;
        open(bed).await;
    })
    .await;
}

#[tokio::test]
async fn process_to_be_killed() {
    if !child::is_child() {
        return;
    }
    child::init();
    let client = bed::builder(&std::env::var("URL").unwrap()).connect().await.unwrap();
    let work = async {
        child::say("works");
        std::future::pending::<()>().await;
    };
    panic!("{:?}", client.once(NAME, secs(0), secs(3600), work).await);
}

/// The owner of the scope does not hold the name: another owner does, for each tick.
#[tokio::test]
async fn owner_scope_does_not_run_the_job_twice() {
    jobs(async |bed| {
        let client = bed.client().await;
        let twice = client.owner().scope(async { (runs(&client).await, runs(&client).await) }).await;
        assert_eq!(twice, (true, false));
        open(bed).await;
    })
    .await;
}

#[tokio::test]
async fn impossible_times_are_refused_before_anything_is_sent() {
    jobs(async |bed: &Bed| {
        let client = bed.still_client().await;
        sent(bed).await;
        for (name, at_least, at_most) in [(NAME, secs(2), secs(1)), (NAME, secs(0), ms(2)), ("", secs(0), secs(1))] {
            let refused = client.once(name, at_least, at_most, async {}).await;
            assert!(matches!(refused, Err(Error::Config { .. })), "{name:?}, {at_least:?}, {at_most:?}: {refused:?}");
        }
        assert_eq!(sent(bed).await.get("evalsha"), None);
    })
    .await;
}

#[tokio::test]
async fn job_costs_two_commands_where_it_runs_and_one_elsewhere() {
    jobs(async |bed| {
        let client = bed.still_client().await;
        let scripts = async || sent(bed).await.get("evalsha").copied();
        assert!(runs(&client).await);
        open(bed).await;
        assert!(client.once(NAME, secs(0), secs(600), async {}).await.unwrap().is_some());
        scripts().await;
        assert!(client.once(NAME, secs(0), secs(600), async {}).await.unwrap().is_some());
        assert_eq!(scripts().await, Some(2));
        assert!(runs(&client).await);
        assert_eq!(scripts().await, Some(2));
        assert!(!runs(&client).await);
        assert_eq!(scripts().await, Some(1));
        open(bed).await;
        idle(&client).await;
    })
    .await;
}
