//! Steps about owners: holds without guards, and their release; owners that are lent.

use std::sync::Arc;

use distlock::Error;
use distlock_support::Numbers;
use tokio::time::Instant;

use super::given::Given;
use super::nemesis::trouble;
use super::plan::{Kind, Sharing};
use super::scene::{LAWFUL, Scene};
use super::state::{Guardless, Spot};
use crate::rig::ms;

/// Gives the guard up; the hold stays for as long as it had left.
pub fn into_owner(scene: &Scene, id: usize) {
    let held = scene.take(id);
    let until = Instant::now() + held.guard.remaining();
    scene.say(|| format!("{id} given up for its owner: {:?}", held.guard));
    let (spot, text, exempt) = (held.spot, held.owner.clone(), held.exempt);
    let owner = held.guard.into_owner();
    let mut state = scene.state.lock();
    if !state.given.iter().any(|given| given.text() == text) {
        let clients = scene.clients;
        state.given.push(Given::new(owner.clone(), spot.party, clients, Sharing::Text));
    }
    let until = if exempt { Instant::now() } else { until };
    state.guardless.push(Guardless { owner, spot, text, until });
}

/// Gives back a hold that has no guard any more, through any client.
pub async fn by_owner(scene: &Arc<Scene>, dice: &mut Numbers) {
    scene.gives_back();
    let hold = {
        let mut state = scene.state.lock();
        let soon = Instant::now() + ms(30);
        let live: Vec<_> = (0..state.guardless.len()).filter(|n| state.guardless[*n].until > soon).collect();
        if live.is_empty() {
            return;
        }
        let at = live[dice.below(live.len() as u64) as usize];
        state.guardless.remove(at)
    };
    let party = dice.below(scene.clients as u64) as usize;
    trouble(scene, dice, party);
    let marked = scene.is_marked(&hold);
    // A RedLock's server that has no vote of this hold gives back another one, even one that was taken meanwhile.
    let votes = !marked && scene.kind == Kind::Red;
    if votes {
        scene.forcing(hold.spot, None);
    }
    // The mark that this hold lost its guard is late, or never comes where the guard's runtime had ended: then it is
    // another one of this owner that is given back.
    let exempt = |text: &str| {
        if !marked {
            let mut state = scene.state.lock();
            let others = state.held.values_mut();
            others.filter(|held| held.owner == text).for_each(|held| held.exempt = true);
        }
    };
    exempt(&hold.text);
    let owner = if party == hold.spot.party { hold.owner.clone() } else { hold.text.parse().unwrap() };
    let (spot, text, until) = (hold.spot, hold.text.clone(), hold.until);
    let _busy = scene.busy();
    let sent: Vec<u64> = scene.party(party).iter().map(|party| party.link.sent()).collect();
    let result = scene.lock(Spot { party, ..hold.spot }).release(&owner).await;
    // One that was under way may have come in since.
    exempt(&text);
    if result.is_err() {
        // It may be there still.
        scene.state.lock().guardless.push(Guardless { until: Instant::now(), ..hold });
    } else if scene.kind == Kind::Red {
        scene.strand(&text, spot, party, &sent);
    }
    scene.say(|| format!("{text} of {spot:?} released by client {party}: {result:?}"));
    if votes {
        scene.forcing(spot, Some(Instant::now() + LAWFUL));
    }
    if let (true, Err(Error::NotHeld { .. })) = (scene.theme.is_exact(), &result)
        && Instant::now() < until
    {
        scene.wrong(format!("own: a hold of {text} was there no more to be released: {result:?}"));
    }
}

/// Takes a guard's owner, for other clients.
pub fn lend(scene: &Scene, id: usize) -> usize {
    let mut state = scene.state.lock();
    let held = &state.held[&id];
    let (owner, text, home) = (held.guard.owner().clone(), held.owner.clone(), held.spot.party);
    for held in state.held.values_mut().filter(|held| held.owner == text) {
        held.who.clone_from(&text);
    }
    if let Some(known) = state.given.iter().position(|given| given.text() == text) {
        return known;
    }
    let clients = scene.clients;
    state.given.push(Given::new(owner, home, clients, Sharing::Object));
    state.given.len() - 1
}
