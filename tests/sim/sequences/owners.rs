//! Steps about owners: holds without guards, releases by owner, and owners that are lent to other clients.

use super::given::Given;
use super::nemesis::trouble;
use super::plan::{Faults, Sharing};
use super::scene::{FORCE_MAY_LAST, Scene};
use super::state::{Guardless, Spot, Stranded};
use crate::fleet::moved;
use crate::prelude::*;

/// Turns the guard into its owner. The hold has no guard then, and stays until its deadline.
pub fn into_owner(scene: &Scene, id: usize) {
    let held = scene.take(id);
    let until = Instant::now() + held.guard.remaining();
    scene.say(|| format!("{id} given up for its owner: {:?}", held.guard));
    let (spot, text, exempt) = (held.spot, held.owner.clone(), held.exempt);
    let owner = held.guard.into_owner();
    let mut state = scene.state.lock();
    if !state.given.iter().any(|given| given.text() == text) {
        state.given.push(Given::new(owner.clone(), spot.party, scene.clients, Sharing::Text, false));
    }
    let until = if exempt { Instant::now() } else { until };
    state.guardless.push(Guardless { owner, spot, text, until });
}

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
    // At a RedLock's server that has no vote of this hold, the release removes another, perhaps newer vote of the
    // owner.
    let votes = !marked && scene.kind.is_red();
    if votes {
        scene.begin_force(hold.spot);
    }
    // The command that marks this hold as one without a guard may be late. It is never sent if the guard's runtime
    // ended. In both cases the release removes another hold of this owner.
    let exempt = |text: &str| {
        if !marked {
            let held = &mut scene.state.lock().held;
            held.values_mut().filter(|held| held.owner == text).for_each(|held| held.exempt = true);
        }
    };
    exempt(&hold.text);
    let owner = if party == hold.spot.party { hold.owner.clone() } else { hold.text.parse().unwrap() };
    let (spot, text, until) = (hold.spot, hold.text.clone(), hold.until);
    let _busy = scene.busy();
    let sent: Vec<u64> = scene.party(party).iter().map(|party| party.link.sent()).collect();
    let result = scene.lock(Spot { party, ..hold.spot }).release(&owner).await;
    // An acquire that was in flight may have succeeded by now.
    exempt(&text);
    if result.is_err() {
        // The hold may still exist at the server.
        scene.state.lock().guardless.push(Guardless { until: Instant::now(), ..hold });
    } else if scene.kind.is_red() {
        scene.strand(&text, spot, party, &sent);
    }
    scene.say(|| format!("{text} of {spot:?} released by client {party}: {result:?}"));
    if votes {
        scene.end_force(spot, Instant::now() + FORCE_MAY_LAST);
    }
    if let (true, Err(Error::NotHeld { .. })) = (scene.theme.is_exact(), &result)
        && Instant::now() < until
    {
        scene.wrong(format!("own: a hold of {text} was there no more to be released: {result:?}"));
    }
}

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
    state.given.push(Given::new(owner, home, scene.clients, Sharing::Object, false));
    state.given.len() - 1
}

impl Scene {
    /// Records the holds that a release by owner left at servers where its command was lost. `sent`: the client's
    /// command numbers at the start of the release, by server.
    fn strand(&self, owner: &str, spot: Spot, party: usize, sent: &[u64]) {
        self.note_trouble();
        let state = &mut *self.state.lock();
        for (server, from) in sent.iter().enumerate() {
            if state.lost.iter().any(|(at, number)| *at == (party, server) && number >= from) {
                let owner = moved(owner, server);
                state.stranded.extend(self.keys(spot).map(|key| Stranded { server, key, owner: owner.clone() }));
            }
        }
    }

    /// True if every server knows that this hold has no guard. Without faults, the mark is sure to arrive.
    fn is_marked(&self, hold: &Guardless) -> bool {
        let marked = |server: &SimServer, owner: &str, key: usize| {
            let list = format!("{}:holds", field(self.flavour(hold.spot.reads), owner));
            let ids = server.command(&[b"hget", self.names[key].as_bytes(), list.as_bytes()]);
            matches!(ids, SimReply::Text(ids) if ids.contains(&b'+'))
        };
        let several = self.servers.len() > 1;
        let mut servers = self.servers.iter().enumerate();
        let owner = |n: usize| if several { moved(&hold.text, n) } else { hold.text.clone() };
        self.theme.faults == Faults::None
            || servers.all(|(n, server)| self.keys(hold.spot).all(|key| marked(server, &owner(n), key)))
    }
}
