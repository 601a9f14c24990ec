//! What goes wrong between several servers and their clients, several things at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock_sim::Chaos;
use distlock_support::Numbers;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::play::Play;
use crate::weather::Kind;

/// Lets things happen until told to stop; then heals everything.
pub async fn happen(play: Arc<Play>, mut dice: Numbers) {
    let mut troubles = JoinSet::new();
    while play.rough.load(Ordering::Relaxed) {
        sleep(dice.between(10, 200)).await;
        while troubles.try_join_next().is_some() {}
        let longest = if dice.once_in(3) { 1000 } else { 200 };
        let span = dice.between(5, longest);
        let choice = match play.weather.kind {
            Kind::Calm | Kind::Messages | Kind::Commands => continue,
            Kind::Breaks => dice.below(7),
            Kind::Jumps => 7,
            Kind::Storm => dice.below(8),
            Kind::DataLoss => 8,
        };
        let server = dice.below(play.fleet.servers.len() as u64) as usize;
        let client = dice.below(play.fleet.clients.len() as u64) as usize;
        let many = dice.below(play.fleet.servers.len() as u64) as usize;
        if troubles.len() < 3 {
            crate::trace::say(|| {
                let now = play.start.elapsed();
                format!("{now:>12?} weather {choice} for {span:?}: server {server}, client {client}, {many} more")
            });
            troubles.spawn(trouble(Arc::clone(&play), choice, (server, client, many), span));
        }
    }
    while let Some(done) = troubles.join_next().await {
        done.unwrap();
    }
    for party in play.fleet.clients.iter().flatten() {
        party.link.chaos(Chaos::default());
    }
}

async fn trouble(play: Arc<Play>, choice: u64, (server, client, many): (usize, usize, usize), span: Duration) {
    let all = &play.fleet.servers;
    let links = &play.fleet.clients[client];
    // From `server` on, round about.
    let some = || (0..=many).map(|n| &links[(server + n) % all.len()].link);
    match choice {
        0 => links[server].link.hang_up(),
        1 => all[server].restart(true),
        2 => {
            some().for_each(|link| link.partition(true));
            sleep(span).await;
            some().for_each(|link| link.partition(false));
        }
        3 => {
            some().for_each(|link| link.stall(true));
            sleep(span).await;
            some().for_each(|link| link.stall(false));
        }
        4 => {
            all[server].freeze(true);
            sleep(span).await;
            all[server].freeze(false);
        }
        5 => {
            all[server].stop();
            sleep(span).await;
            all[server].start(true);
        }
        // A client that does not come to anything.
        6 => {
            links.iter().for_each(|party| party.link.stall(true));
            sleep(span).await;
            links.iter().for_each(|party| party.link.stall(false));
        }
        7 => tokio::time::advance(span).await,
        // Of several at once: one alone loses no majority.
        _ => (0..=many).for_each(|n| all[(server + n) % all.len()].restart(false)),
    }
}
