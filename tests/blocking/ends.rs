//! The end of a client: by its last handle, by a shutdown, and with the runtime of an async client.

use std::thread;

use bed::{PATIENCE, ends};
use distlock::blocking::{Client, Guard};
use distlock::{Error, Result};

use crate::rig::{Rig, runtime};

#[test]
fn drop_of_the_last_handle_returns_after_the_background_releases() {
    let rig = Rig::start();
    let client = rig.client();
    let guards: Vec<Guard> = (0..100).map(|n| client.reentrant(&format!("x{n}")).lock().unwrap()).collect();
    drop(client);
    assert_eq!((guards.iter().filter(|guard| guard.is_held()).count(), rig.keys().len()), (100, 100));
    drop(guards);
    assert_eq!(rig.keys(), [""; 0]);
    rig.end();
}

#[test]
fn shutdown_ends_waiting_calls_with_closed() {
    let rig = Rig::start();
    let (holder, client) = (rig.client(), rig.client());
    let guard = holder.reentrant("x").lock().unwrap();
    let (latch, gate) = (holder.latch("parts"), holder.permits("gate"));
    assert!(latch.try_set(1).unwrap() && gate.try_set_permits(1).unwrap());
    let (permit, shared) = (gate.acquire(1).unwrap(), &client);
    thread::scope(|scope| {
        let calls: [fn(&Client) -> Result<()>; 3] = [
            |client| client.reentrant("x").lock().map(drop),
            |client| client.latch("parts").wait(),
            |client| client.permits("gate").acquire(1).map(drop),
        ];
        let waiting = calls.map(|call| scope.spawn(move || call(shared)));
        rig.wait_for_waiters(shared, 3);
        shared.shutdown(PATIENCE).unwrap();
        for waiter in waiting {
            let outcome = waiter.join().unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        }
    });
    assert!(matches!(client.reentrant("x").lock(), Err(Error::Closed)));
    guard.unlock().unwrap();
    permit.release().unwrap();
    holder.block_on(gate.as_async().delete()).unwrap();
    latch.count_down(1).unwrap();
    drop((latch, gate, holder, client));
    rig.end();
}

#[test]
fn client_over_an_async_client_leaves_that_client_open() {
    let rig = Rig::start();
    let shared = rig.runtime.block_on(rig.builder().connect()).unwrap();
    let client = Client::over(shared.clone());
    let guard = client.fair("x").lock().unwrap();
    assert!(rig.runtime.block_on(shared.fair("x").try_lock()).unwrap().is_none());
    drop(client);
    assert!(guard.is_held());
    drop(guard);
    rig.runtime.block_on(async {
        let guard = ends("the next acquire", shared.fair("x").lock()).await.unwrap();
        guard.unlock().await.unwrap();
        bed::end(shared).await;
    });
    rig.end();
}

#[test]
fn waiting_call_ends_with_the_runtime_of_its_async_client() {
    let rig = Rig::start();
    let (holder, other) = (rig.client(), runtime());
    let guard = holder.reentrant("x").lock().unwrap();
    let client = Client::over(other.block_on(rig.builder().connect()).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.reentrant("x").lock());
        rig.wait_for_waiters(&client, 1);
        other.shutdown_background();
        let outcome = waiting.join().unwrap();
        assert!(matches!(outcome, Err(Error::RuntimeGone)), "{outcome:?}");
    });
    guard.unlock().unwrap();
    drop((holder, client));
    rig.end();
}

/// Counts threads by their name, in a process with one test.
#[cfg(target_os = "linux")]
mod threads {
    use bed::becomes;
    use distlock::blocking::Client;
    use distlock_support::child::{self, Child};

    use crate::rig::{Rig, runtime};

    #[test]
    fn threads_of_a_client_end_with_its_last_handle() {
        let rig = Rig::start();
        let url = rig.server.url();
        rig.runtime.block_on(async {
            let mut child = Child::spawn("ends::threads::process_that_counts_its_threads", &[("URL", &url)]);
            child.expect("counted").await;
            assert!(child.wait().await.success(), "{}", child.output());
        });
        rig.end();
    }

    /// Number of threads of this process with the name of a client's thread.
    fn count() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
        // The file of a thread that has just ended cannot be read.
        tasks.filter(|file| std::fs::read_to_string(file).is_ok_and(|name| name.trim_end() == "distlock")).count()
    }

    #[test]
    fn process_that_counts_its_threads() {
        if !child::is_child() {
            return;
        }
        child::init();
        let waits = runtime();
        assert!(Client::connect("nonsense").is_err());
        waits.block_on(becomes("threads after a refused URL", 0, async || count()));
        let client = Client::connect(&std::env::var("URL").unwrap()).unwrap();
        let (other, lock) = (client.clone(), client.reentrant("x"));
        let guard = lock.lock().unwrap();
        drop((client, other, lock));
        assert!(guard.is_held());
        assert!(count() > 0, "no thread has the name of a client's thread");
        drop(guard);
        waits.block_on(becomes("threads after the last handle", 0, async || count()));
        child::say("counted");
    }
}
