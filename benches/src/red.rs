//! RedLock over five servers, compared with a reentrant lock on one server, and with Redisson's RedLock, which asks
//! one server after the other. Here all five servers and their client share a few cores, which they would not in
//! production. So the comparison with one server uses lines with a round trip of 1 ms.

use std::time::Duration;

use crate::bed::{Bed, By, Sides};
use crate::benches::HOLD;
use crate::drive::{Kind, Plan, Timed};
use crate::fair::WITH;
use crate::line::Line;
use crate::report::Row;
use crate::subject::Who;

const SERVERS: usize = 5;
/// The number of servers that may be down.
const AWAY: usize = 2;
const KIND: Kind = Kind::Red(SERVERS);
const EACH_WAY: Duration = Duration::from_micros(500);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The subjects for the time to acquire. Redisson is left out when servers are down, since it waits for each of them.
fn subjects(bed: &Bed) -> Vec<Who> {
    let mut subjects = vec![Who::Distlock, Who::Reentrant];
    subjects.extend(bed.args.subjects.contains(&Who::Redisson).then_some(Who::Redisson));
    subjects
}

/// Time from the call until the lock is held, for one task: with all servers up, with two killed, and with two
/// stopped.
pub async fn waits(bed: &Bed) -> Vec<Row> {
    let extent = if bed.args.quick { (5, ms(150)) } else { (13, ms(300)) };
    let mut rows = Vec::new();
    let mut red = Bed::over(bed.args.clone(), SERVERS, 1).await;
    let mut sides = red.here(&subjects(bed), &[KIND]).await;
    rows.extend(red.waits("red", KIND, &mut sides, extent).await);
    let (mut ours, java) = apart(sides);
    red.close(java).await;

    red.away = AWAY;
    for (server, _) in away(&red) {
        server.kill9();
    }
    rows.extend(red.waits("red 2 killed", KIND, &mut ours, extent).await);
    red.close(ours).await;
    for (server, _) in away(&red) {
        server.restart();
    }
    let mut ours = red.here(&[Who::Distlock, Who::Reentrant], &[]).await;
    for (server, _) in away(&red) {
        server.stop();
    }
    rows.extend(red.waits("red 2 stopped", KIND, &mut ours, extent).await);
    for (server, _) in away(&red) {
        server.cont();
    }
    red.close(ours).await;
    rows
}

/// The same over a network, with all servers up and with two cut off.
pub async fn far(bed: &Bed) -> Vec<Row> {
    let extent = if bed.args.quick { (3, ms(400)) } else { (9, ms(600)) };
    let mut red = Bed::over(bed.args.clone(), SERVERS, 1).await;
    let lines: Vec<Line> = std::iter::once(red.server.addr())
        .chain(red.others.iter().map(|(server, _)| server.addr()))
        .map(|server| Line::to(server, EACH_WAY))
        .collect();
    red.urls = lines.iter().map(Line::url).collect();
    let mut sides = red.here(&subjects(bed), &[KIND]).await;
    let mut rows = red.waits("red 1 ms", KIND, &mut sides, extent).await;
    let (mut ours, java) = apart(sides);
    red.close(java).await;
    for line in &lines[SERVERS - AWAY..] {
        line.cut();
    }
    rows.extend(red.waits("red 1 ms 2 cut off", KIND, &mut ours, extent).await);
    red.close(ours).await;
    rows
}

/// Five processes on one name.
pub async fn together(bed: &Bed) -> Vec<Row> {
    let (rounds, length) = if bed.args.quick { (1, ms(3000)) } else { (3, ms(6000)) };
    let red = Bed::over(bed.args.clone(), SERVERS, SERVERS).await;
    let subjects: Vec<Who> = WITH.into_iter().filter(|who| bed.args.subjects.contains(who)).collect();
    let mut sides = red.apart(&subjects, &[KIND]).await;
    let plan = Plan { tasks: 1, kind: KIND, name: String::new(), own: false, timed: Timed::Wait, hold: HOLD, length };
    let rows = red.rounds("red contended", SERVERS, &mut sides, &plan, rounds, By::Rate).await;
    red.close(sides).await;
    rows
}

/// Separates Redisson from our subjects.
fn apart(sides: Sides) -> (Sides, Sides) {
    sides.into_iter().partition(|(who, _)| *who != Who::Redisson)
}

/// Returns the servers that a bench takes down.
fn away(bed: &Bed) -> &[(distlock_support::RedisServer, distlock_support::Admin)] {
    &bed.others[bed.others.len() - AWAY..]
}
