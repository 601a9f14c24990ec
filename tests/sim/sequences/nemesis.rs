//! Faults: lost, duplicated and late commands, forged messages, breaks.

use super::plan::{Faults, Kind};
use super::play::Beside;
use super::scene::Scene;
use super::state::Planned;
use crate::prelude::*;
use crate::trial::Break;

/// Plans a fault for a command of a client.
pub fn trouble(scene: &Scene, dice: &mut Numbers, party: usize) {
    if scene.theme.faults == Faults::None || dice.once_in(2) {
        return;
    }
    let (link, server) = link(scene, dice, party);
    let late = match dice.below(5) {
        // Group locks get no such fault: after a failed acquire they release members, which no step of the test shows.
        0 | 1 if scene.strict && scene.kind != Kind::Multi && !scene.kind.is_red() => {
            dice.between(1, scene.timeout.as_millis() as u64)
        }
        _ if scene.strict => dice.between(0, 6_000) + scene.in_time_for(),
        0 => dice.between(1, 50),
        1 | 2 => dice.between(50, 700),
        3 => dice.between(700, 5_000),
        _ => dice.between(5_000, 60_000),
    };
    let told = dice.once_in(2);
    let lost = |request| match (request, told) {
        (true, true) => Mishap::LoseRequest,
        (true, false) => Mishap::SwallowRequest,
        (false, true) => Mishap::LoseReply,
        (false, false) => Mishap::SwallowReply,
    };
    let mishaps = match dice.below(12) {
        2..4 if scene.strict => vec![Mishap::LateCopy(late)],
        0 => vec![lost(true)],
        1 => vec![lost(false)],
        2 => vec![Mishap::DelayBy(dice.between(1, 400))],
        // The command is answered, and a copy of it arrives later.
        3 => vec![Mishap::LateCopy(dice.between(1, 60))],
        4..7 => vec![Mishap::LateCopy(late)],
        7..10 => vec![lost(false), Mishap::LateCopy(late)],
        _ if told => vec![Mishap::LateOnly(late)],
        _ => vec![lost(true), Mishap::LateOnly(late)],
    };
    // Sometimes a later command is hit, because later commands confirm, retry or release.
    let behind = if dice.once_in(4) { 1 + dice.below(3) } else { 0 };
    let number = link.sent() + behind;
    scene.say(|| format!("command {number} of client {party}, after {behind} others: {mishaps:?}"));
    let copy = mishaps.iter().find_map(|mishap| match mishap {
        Mishap::LateCopy(late) | Mishap::LateOnly(late) => Some(*late),
        _ => None,
    });
    let lost = !matches!(mishaps.as_slice(), [Mishap::LateCopy(_)]);
    mishaps.into_iter().for_each(|mishap| link.plan(number, mishap));
    let planned = Planned { link, at: (party, server), number, late: copy, lost, since: Instant::now() };
    scene.state.lock().planned.push(planned);
    scene.quiet_after(late + ms(500));
}

/// A random link of a client, and the number of its server.
fn link(scene: &Scene, dice: &mut Numbers, party: usize) -> (SimLink, usize) {
    let links = scene.party(party);
    let server = dice.below(links.len() as u64) as usize;
    (links[server].link.clone(), server)
}

/// Publishes a message that no client sent, or one that was sent earlier.
pub fn forge(scene: &Arc<Scene>, beside: &mut Beside, dice: &mut Numbers) {
    let at = dice.below(scene.servers.len() as u64) as usize;
    let server = scene.servers[at].clone();
    let channels = server.channels();
    let mut state = scene.state.lock();
    state.heard.extend(server.overhear());
    let any = |n: usize, dice: &mut Numbers| dice.below(n as u64) as usize;
    let old = (!state.heard.is_empty() && dice.once_in(2)).then(|| state.heard[any(state.heard.len(), dice)].clone());
    drop(state);
    let odd = b"0,1,2,500,4000,9999999999,-1,,abc,4000:,2:0,\xff,4000 0123456789abcdef";
    let odd: Vec<_> = odd.split(|byte| *byte == b',').collect();
    let (channel, payload) = match (old, channels.is_empty()) {
        (Some(old), true) => old,
        // The old message is published on its own channel or on another one.
        (Some(old), false) if dice.once_in(2) => old,
        (Some((_, payload)), false) => (channels[any(channels.len(), dice)].clone(), payload),
        (None, false) => (channels[any(channels.len(), dice)].clone(), odd[any(odd.len(), dice)].to_vec()),
        (None, true) => return,
    };
    let later = match dice.below(4) {
        0 => dice.between(1, 60_000),
        1 => dice.between(1, 300),
        _ => Duration::ZERO,
    };
    scene.say(|| {
        let (channel, payload) = (String::from_utf8_lossy(&channel), String::from_utf8_lossy(&payload));
        format!("{payload:?} forged on {channel} after {later:?}")
    });
    if later.is_zero() {
        server.publish(&channel, &payload);
        return;
    }
    scene.quiet_after(later);
    beside.spawn(async move {
        sleep(later).await;
        server.publish(&channel, &payload);
    });
}

pub fn breaks(scene: &Arc<Scene>, beside: &mut Beside, dice: &mut Numbers) {
    let party = dice.below(scene.clients as u64) as usize;
    let (link, _) = link(scene, dice, party);
    let server = scene.servers[dice.below(scene.servers.len() as u64) as usize].clone();
    let (what, span) = (dice.below(5), dice.between(5, 500));
    scene.say(|| format!("break {what} of client {party} for {span:?}"));
    beside.spawn(async move { Break::of(what, span).happen(&server, &link).await });
}
