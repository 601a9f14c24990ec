//! Many calls at a time, which share commands over slots, while the slots move key by key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use distlock::{Acquire, Client, Flavour};
use distlock_support::slot_of;

use crate::{client, end, lock, ms, primaries, secs};

const FLAVOURS: [Flavour; 6] =
    [Flavour::Reentrant, Flavour::Spin, Flavour::Plain, Flavour::Fair, Flavour::Fenced, Flavour::Write];

/// A name, and what is known of who is inside.
struct Section {
    flavour: Flavour,
    name: String,
    is_taken: AtomicBool,
    entered: AtomicUsize,
}

/// Goes in and out until it is told to stop. Nobody else is inside meanwhile, and no call fails.
async fn go_in_and_out(client: Client, section: Arc<Section>, ended: Arc<AtomicBool>) {
    let lock = lock(&client, section.flavour, &section.name);
    while !ended.load(Ordering::Relaxed) {
        let guard = lock.acquire(Acquire::new().wait(secs(60))).await.unwrap().expect("had within a minute");
        assert!(!section.is_taken.swap(true, Ordering::SeqCst), "{}: two holders", section.name);
        section.entered.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        assert!(section.is_taken.swap(false, Ordering::SeqCst));
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_slots_move_and_nobody_notices() {
    let cluster = primaries(3).await;
    let clients = [client(&cluster).await, client(&cluster).await];
    let ended: Arc<AtomicBool> = Arc::default();
    let sections: Vec<Arc<Section>> = (0..24)
        .map(|n| {
            let (name, flavour) = (format!("load:{n}"), FLAVOURS[n % FLAVOURS.len()]);
            Arc::new(Section { flavour, name, is_taken: AtomicBool::new(false), entered: AtomicUsize::new(0) })
        })
        .collect();
    // Held all the while: what is renewed by one command is in slots that move, and in others.
    let mut held = Vec::new();
    for n in 0..200 {
        held.push(clients[0].reentrant(&format!("held:{n}")).lock().await.unwrap());
    }
    let tasks: Vec<_> = sections
        .iter()
        .flat_map(|section| clients.iter().flat_map(move |client| [(client, section), (client, section)]))
        .map(|(client, section)| tokio::spawn(go_in_and_out(client.clone(), Arc::clone(section), Arc::clone(&ended))))
        .collect();
    for section in &sections {
        let slot = slot_of(&section.name);
        let to = cluster.other_primary(cluster.primary_of(&section.name).await).await;
        cluster.open_slot(slot, to).await;
        // What comes into being there meanwhile is at the other side already.
        for _ in 0..3 {
            for key in cluster.keys_in_slot(slot).await {
                cluster.move_keys(slot, &[&key]).await;
            }
            assert_eq!(clients[0].renew_now().await.lost, 0);
        }
        loop {
            let rest = cluster.keys_in_slot(slot).await;
            if rest.is_empty() {
                break;
            }
            cluster.move_keys(slot, &rest).await;
        }
        cluster.close_slot(slot).await;
    }
    for n in 0..20 {
        cluster
            .move_slot(
                slot_of(format!("held:{n}")),
                cluster.other_primary(cluster.primary_of(&format!("held:{n}")).await).await,
            )
            .await;
    }
    // After all of it each goes on.
    let so_far: Vec<usize> = sections.iter().map(|section| section.entered.load(Ordering::Relaxed)).collect();
    for (section, before) in sections.iter().zip(so_far) {
        while section.entered.load(Ordering::Relaxed) < before + 4 {
            assert!(tasks.iter().all(|task| !task.is_finished()), "a task has failed");
            tokio::time::sleep(ms(5)).await;
        }
    }
    ended.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(held.iter().all(distlock::Guard::is_held));
    for guard in held {
        guard.unlock().await.unwrap();
    }
    for client in clients {
        end(client).await;
    }
}
