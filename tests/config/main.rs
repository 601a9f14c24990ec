//! Redisson's YAML: real-world files, read by this crate and by Redisson, and used by both at once. Also broken files.
//!
//! The files' addresses and passwords are variables for the servers that the tests start.

mod broken;
mod mapper;
mod oracle;
mod samples;
mod servers;
mod settings;

use std::path::PathBuf;

use bed::{PATIENCE, becomes, ends, eventually, idle};
use distlock::{Client, Guard, RedissonYaml, Result};
use distlock_support::agent::{Agent, AgentOptions, Kind, VERSIONS};

use samples::Sample;

type Variables = Vec<(String, String)>;

fn variables<const N: usize>(pairs: [(&str, String); N]) -> Variables {
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

fn file(folder: &str, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(folder).join(format!("{name}.yaml"))
}

fn text(folder: &str, name: &str) -> String {
    let path = file(folder, name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the result of a call. The file sets the timeouts, so on a slow machine the call is retried after retryable
/// errors.
async fn answer<T>(what: &str, call: impl AsyncFn() -> Result<T>) -> T {
    let mut answer = None;
    eventually(what, async || match call().await {
        Err(error) if error.is_retryable() => false,
        outcome => {
            answer = Some(outcome.unwrap_or_else(|error| panic!("{what}: {error}")));
            true
        }
    })
    .await;
    answer.expect("the call was answered")
}

/// Tries once to acquire a lock with our client. An attempt without a reply is undone before the next attempt.
async fn attempt(client: &Client, name: &str) -> Option<Guard> {
    answer(name, async || {
        idle(client).await;
        client.reentrant(name).try_lock().await
    })
    .await
}

/// Asserts that this crate and Redisson read the same settings from a sample, and that both acquire the same lock in
/// turn with these settings.
async fn used(sample: &Sample, variables: &Variables) -> Client {
    let Sample { name, .. } = sample;
    let read = RedissonYaml::new().variables(variables.clone()).read(&text("redisson", name));
    let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(read.left_out().is_empty());
    let builder = read.into_builder();
    let client = answer(name, async || builder.clone().connect().await).await;
    let lock = client.reentrant(name);

    for (version, _) in VERSIONS.into_iter().zip(sample.read_by).filter(|(_, is_read)| *is_read) {
        let options = AgentOptions {
            yaml: Some(file("redisson", name)),
            variables: variables.clone(),
            ..AgentOptions::version(version)
        };
        let agent = Agent::start("the file says it", options).await;
        let java = agent.at(Kind::Reentrant, name, 1);
        assert!(java.try_lock().await.expect("Redisson answers"), "{name}, {version}");
        assert!(attempt(&client, name).await.is_none(), "{name}, {version}: no exclusion");
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await }
        });
        becomes("waiting tasks", 1, async || client.stats().waiting).await;
        java.unlock().await.expect("Redisson holds it");
        let guard = ends(name, waiter).await.expect("no panic").expect("the lock");
        assert!(!java.try_lock().await.expect("Redisson answers"), "{name}, {version}: no exclusion");
        let theirs = java.start_lock();
        guard.unlock().await.expect("held");
        ends(name, theirs).await.expect("the lock");
        java.unlock().await.expect("Redisson holds it");
        agent.close().await;
    }
    lock.lock().await.expect("free").unlock().await.expect("held");
    client
}

/// Compares all samples of a kind with what Redisson reads, and uses them.
async fn all(samples: &[Sample], variables: &Variables) {
    let mut clients = Vec::new();
    for sample in samples {
        clients.push(used(sample, variables).await);
    }
    oracle::compare(samples, variables, &clients);
    for client in clients {
        client.shutdown(PATIENCE).await.expect("shutdown of an idle client");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_server_samples_match_redisson() {
    let servers = servers::Single::start().await;
    all(samples::OPEN, &servers.open()).await;
    all(samples::CLOSED, &servers.closed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_samples_match_redisson() {
    let (_cluster, variables) = servers::cluster().await;
    all(samples::CLUSTER, &variables).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_samples_match_redisson() {
    let (_bed, variables) = servers::sentinels().await;
    all(samples::SENTINEL, &variables).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicated_samples_match_redisson() {
    let (_bed, variables) = servers::replicas().await;
    all(samples::REPLICATED, &variables).await;
}

#[test]
fn every_sample_file_is_used_by_a_test() {
    let known: Vec<_> = samples::all().map(|sample| sample.name).collect();
    let folder = file("redisson", "x").parent().expect("a folder").to_owned();
    for entry in std::fs::read_dir(folder).expect("the samples") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        assert!(known.iter().any(|known| name == format!("{known}.yaml")), "{name} is used by no test");
    }
    assert!(known.len() >= 20);
}
